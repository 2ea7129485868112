// A file that this process keeps open, even if the program reuses its descriptor's number.
#pragma once

#include <shoal/ipc/fd.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace shoal {

/// Remembers device and inode of an open file. Programs close descriptors that they have not opened (as daemons do) and
/// open files of their own, which get the numbers. So code that has kept a number for long asks here first. (It does
/// not notice a thread that closes the number at that very moment; and eventfds, epolls and, before Linux 6.9, pidfds
/// are one file to it.) Owned by the Session, or by a service thread's object; threads: any.
class OwnFile {
 public:
  OwnFile() = default;
  /// `what` is the file's name in errors, a literal: "the session's memory".
  OwnFile(Fd file, const char* what) noexcept;
  OwnFile(OwnFile&&) noexcept = default;
  OwnFile& operator=(OwnFile&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(what_, other.what_);
    std::swap(device_, other.device_);
    std::swap(inode_, other.inode_);
    return *this;
  }
  /// Closes the file, but no other file that has its number by now.
  ~OwnFile();

  /// Whether the number still is this file's.
  bool is_open() const noexcept;
  /// The number. Throws Error if it is another file's by now, or closed.
  int descriptor() const;
  /// The number, or -1.
  int descriptor_if_open() const noexcept { return is_open() ? file_.get() : -1; }
  void reset() noexcept { OwnFile closing(std::move(*this)); }  ///< as the destructor
  /// Bytes of pages or blocks that the file has; nothing if it is not open any more.
  std::optional<std::uint64_t> resident_bytes() const noexcept;

  dev_t device() const noexcept { return device_; }
  ino_t inode() const noexcept { return inode_; }

 private:
  Fd file_;
  const char* what_ = "";
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace shoal
