// The memory of a session, as somebody outside of it reads it.
#pragma once

#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/layout/block_header.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/ipc/fd.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace shoal {

/// Reads the heap's file and nothing else: it has no hold and no slot, and the session does not know of it. It reads by
/// pread() and not through a mapping, because a read through a mapping takes a page if there was none, and a file that
/// is cut short meanwhile would be a SIGBUS. Every position comes from memory that others write, so none is believed:
/// what lies outside the file is not there, and a look reads no more than kMostBytes in all. Owned by one thread. If
/// the session ends, its last state stays readable as long as this is open.
class SessionFile {
 public:
  static constexpr std::uint64_t kMostBytes = 1ull << 30;

  /// The session that a process is part of; nothing if it has none. Throws Error if there is no such process,
  /// if it belongs to another user (the kernel refuses), and if its session was made by another version of shoal.
  static std::optional<SessionFile> of_process(pid_t pid);
  /// A file that may be anything. Throws Error if it is no session's memory of this version.
  explicit SessionFile(Fd file);

  /// A value that tells one session from another.
  std::uint64_t device() const { return device_; }
  std::uint64_t inode() const { return inode_; }
  bool is_same(const SessionFile& other) const { return device_ == other.device_ && inode_ == other.inode_; }

  /// Begins a look: what has been read so far no longer counts.
  void begin_look() const { left_ = kMostBytes; }
  /// Whether a look had to end before it was through.
  bool is_exhausted() const { return left_ == 0; }

  /// Copies bytes; false if they are not all there.
  bool read(std::uint64_t offset, void* into, std::uint64_t bytes) const;
  template <class T>
  bool read(std::uint64_t offset, T& into) const {
    static_assert(std::is_standard_layout_v<T>);
    return read(offset, static_cast<void*>(&into), sizeof into);
  }

  /// Where the tables lie: written once, and checked when the file was opened.
  struct Plan {
    std::uint64_t processes, activities, stacks, extents, headers, data, extent_count;
    std::int32_t root_pid;
  };
  const Plan& plan() const { return plan_; }

  std::uint64_t header(std::uint64_t extent, std::uint32_t block) const {
    return plan_.headers + (extent * kHeadersPerExtent + block) * kHeaderBytes;
  }
  bool is_header(std::uint64_t offset) const {
    return offset >= plan_.headers && offset < plan_.data && (offset - plan_.headers) % kHeaderBytes == 0;
  }
  std::uint64_t data(std::uint64_t extent) const { return plan_.data + extent * kExtentBytes; }
  /// Bytes of pages that the file has.
  std::uint64_t resident() const;

 private:
  Fd file_;
  std::uint64_t device_ = 0, inode_ = 0;
  Plan plan_{};
  mutable std::uint64_t left_ = kMostBytes;
};

/// The value of an atomic in a copy that read() made.
template <class T>
T copied(const std::atomic<T>& word) {
  return word.load(std::memory_order_relaxed);  // relaxed: nobody else writes the copy
}

/// A session that was found, and how.
struct FoundSession {
  SessionFile file;
  pid_t process;  // one that is part of it
};

/// Finds a session by the name under which it listens, or the pid of any process of it. Throws Error if there is none.
FoundSession find_session(const std::string& name_or_pid);
/// All sessions that this user may look at, each once; by the pid of the root.
std::vector<FoundSession> find_sessions();

}  // namespace shoal
