// The heap of malloc in pages that a fork does not copy.
#pragma once

#include <shoal/ipc/fd.h>

#include <cstddef>
#include <string>

namespace shoal {

/// A fork copies a page table entry for each page that the process has written to, and the child's end takes them apart
/// again: with libtorch loaded 14,000, nine in ten of malloc's heap, and most of a fork's time. Pages of a file that
/// is mapped privately are not copied: the child finds them when it first touches them. So this moves the heap into a
/// file of memory, where it lies, a piece at a time. What is written later is the writing process's own, as ever.
///
/// For a process that forks and has one thread, its service threads counted too: nobody writes while a piece moves. The
/// caller looks before each piece. If malloc is not glibc's, the heap is small or has transparent huge pages (which
/// moving would lose), or files are limited in size, there is nothing to do from the beginning; if a piece cannot be
/// moved, that and the rest stay as they are. Owned by the fork server. The file has no name: it is gone with the last
/// process that has the mapping, the server or a child that outlived it for a moment.
///
/// DANGER: memory that its user gives back by MADV_DONTNEED is not zero afterwards, but what it was. Of malloc's heap
/// glibc gives back only by brk, and in malloc_trim, after which it expects nothing; other allocators may expect zeros.
class FrozenHeap {
 public:
  static constexpr std::size_t kPieceBytes = 4u << 20, kSmallestBytes = 4u << 20;
  static constexpr const char* kName = "shoal-frozen-heap";

  /// Looks where the heap is. What it grows by afterwards is not moved.
  FrozenHeap();

  bool is_done() const { return next_ == end_; }
  /// Why nothing is moved from the beginning. Empty if something is, or the heap is too small to be worth it.
  const std::string& obstacle() const { return obstacle_; }
  /// Milliseconds, most of them for the kernel's new pages.
  void freeze_piece() noexcept;
  /// In a forked child, and if no more shall be moved.
  void stop() noexcept;

 private:
  bool move(std::byte* piece, std::size_t bytes) noexcept;

  bool find_heap();

  Fd file_;
  std::string obstacle_;
  std::byte *begin_ = nullptr, *next_ = nullptr, *end_ = nullptr;
};

}  // namespace shoal
