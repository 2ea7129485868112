// A block kept live for a moment by a process that has no hold on it.
#pragma once

#include <shoal/ipc/heap.h>

namespace shoal {

/// For who has only read that there is a block with certain holds, which may be gone by the next moment: while the
/// visit lasts the block stays live, so its chunks are chunks, and a hold can be added (invariant I5 of BlockHeader). A
/// block has one visitor at a time, for some microseconds; the constructor waits for the one before. If that one is
/// dead, it takes its place. The destructor ends the visit, and frees the block if nobody holds it by then. One thread.
/// A visitor that dies is noticed by the next one, or by its reclaimer.
class BlockVisit {
 public:
  /// Empty if the block is not live.
  BlockVisit(Heap& heap, BlockOffset block) noexcept : BlockVisit(heap, block, -1) {}
  /// The same, but without end only where whoever visits the block is running: empty, with was_kept_out(), if it is
  /// stopped, or gets no CPU. For who can come again.
  static BlockVisit with_patience(Heap& heap, BlockOffset block) noexcept { return {heap, block, kPatience}; }
  BlockVisit(const BlockVisit&) = delete;
  ~BlockVisit() { end(); }

  explicit operator bool() const noexcept { return bool(block_); }
  BlockOffset block() const noexcept { return block_; }
  bool was_kept_out() const noexcept { return kept_out_; }
  /// What the destructor does. True if nobody held the block, so that it was freed.
  bool end() noexcept;

 private:
  static constexpr int kPatience = 200;  // naps
  BlockVisit(Heap& heap, BlockOffset block, int naps) noexcept;

  Heap& heap_;
  BlockOffset block_;
  bool kept_out_ = false;
};

}  // namespace shoal
