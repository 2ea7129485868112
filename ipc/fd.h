// An owned file descriptor.
#pragma once

#include <utility>

namespace shoal {

/// Owns one file descriptor and closes it. Move-only; not synchronized. If the process dies, the kernel closes the
/// descriptor.
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

/// Moves the file to a descriptor number of at least 3: returns `fd` itself if its number is that high, otherwise a
/// duplicate, and closes `fd`. Every descriptor that shoal makes goes through here. A program may run without standard
/// input, output or error (`./program >&-`). Its next descriptor then gets number 0, 1 or 2, and what the program
/// prints would land in that file, which might be the session's memory. Returns an empty Fd if `fd` is empty, or, with
/// errno set, if the process can open no further descriptor.
[[nodiscard]] Fd lift(Fd fd) noexcept;

/// The two ends of a pipe.
struct PipeEnds {
  /// The end to read from, owned by this object.
  Fd reading, writing;  ///< the end to write to, owned by this object
};
/// pipe2(2) with O_CLOEXEC and both ends lifted. Throws SystemError.
PipeEnds make_pipe();

}  // namespace shoal
