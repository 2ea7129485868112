// The folder where sessions that listen are found, and how a name in it is claimed.
#pragma once

#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/ipc/fd.h>
#include <sys/un.h>

#include <string>
#include <vector>

namespace shoal {

/// A folder of this user's alone, with mode 0700, where each session that listens has a socket NAME.sock and a lock
/// NAME.lock. Owned by whoever holds the object, one thread. When a listening process dies the kernel drops its lock;
/// its socket stays behind, answers nobody, and is replaced by the next one that claims the name.
class RendezvousFolder {
 public:
  /// Where it may be: XDG_RUNTIME_DIR/shoal, then /tmp/shoal-UID.
  static std::vector<std::string> candidates();
  /// Makes the first one that can be made. Throws Error if a folder of that name is not this user's alone.
  static RendezvousFolder open_or_make();
  /// Opens one that is there; nothing if it is not. Throws Error as above.
  static RendezvousFolder open(const std::string& path);

  explicit operator bool() const { return folder_.is_open(); }
  const std::string& path() const { return path_; }

  /// The address of the name's socket. Through the open folder: its path may be longer than an address can be, and may
  /// not lead elsewhere meanwhile.
  sockaddr_un address(const std::string& name) const;

  /// Claims the name for this process: a record lock on a file, held as long as the descriptor is open and this process
  /// lives; fork does not inherit it. Throws Error naming the process that has the name.
  Fd claim(const std::string& name) const;
  /// A listening socket under a name that was claimed, in place of what a dead process left there.
  Fd listen(const std::string& name) const;
  /// Removes what the claim's holder put here.
  void remove(const std::string& name) const noexcept;

  /// Throws std::invalid_argument if this cannot be a name: 1 to 64 letters, digits, '.', '_' or '-', and no dot
  /// first.
  static void check_name(const std::string& name);

 private:
  RendezvousFolder(std::string path, Fd folder)
      : path_(std::move(path)), folder_(static_cast<Fd&&>(folder), "the folder of sessions that listen") {}

  std::string path_;
  OwnFile folder_;
};

}  // namespace shoal
