// An owned file descriptor.
#pragma once

#include <utility>

namespace shoal {

/// Owns one file descriptor and closes it. Move-only. Owned by whoever holds the object; not
/// synchronized. A process that dies has its descriptors closed by the kernel.
class Fd {
 public:
  Fd() = default;
  /// Takes the descriptor over; a negative number is none.
  explicit Fd(int descriptor) noexcept : descriptor_(descriptor) {}
  Fd(Fd&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Fd();

  int get() const noexcept { return descriptor_; }  ///< the number, still owned by this object; -1: none
  explicit operator bool() const noexcept { return descriptor_ >= 0; }  ///< whether there is one
  /// Gives the descriptor up without closing it: it is the caller's to close.
  int release() noexcept { return std::exchange(descriptor_, -1); }
  void reset() noexcept { Fd closing(std::exchange(descriptor_, -1)); }  ///< closes it

 private:
  int descriptor_ = -1;
};

/// The same file under a number of 3 or above: `fd` itself where it has one, else a duplicate, and `fd` is closed.
/// Every descriptor that shoal makes goes through here: a program may run without standard input, output or error
/// (`./program >&-`), the next descriptor made gets that number, and what the program prints would go there, into the
/// session's memory, say. Empty where `fd` is, or with errno where the process can have no further descriptor.
[[nodiscard]] Fd lift(Fd fd) noexcept;

/// The two ends of a pipe.
struct PipeEnds {
  /// The end to read from, owned by this object.
  Fd reading, writing;  ///< the end to write to, owned by this object
};
/// pipe2(2) with O_CLOEXEC and both ends lifted. Throws SystemError.
PipeEnds make_pipe();

}  // namespace shoal
