// Blocks of the shared heap, where they lie, and the holds that decide when one is free.
#pragma once

#include <shoal/ipc/heap/block_header.h>
#include <shoal/ipc/heap/hold_protocol.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace shoal {

/// What the protocol of holds (hold_protocol.h) needs to know of the memory it works on: where offset 0 is mapped.
class BlockMemory {
 public:
  explicit BlockMemory(std::byte* base) : base_(base) {}
  std::byte* base() const { return base_; }
  BlockHeader& header(BlockOffset block) const { return *reinterpret_cast<BlockHeader*>(base_ + block.value); }
  std::byte* payload(BlockOffset block) const { return base_ + header(block).payload; }
  HoldChunk& chunk(BlockOffset block) const { return *reinterpret_cast<HoldChunk*>(payload(block)); }

  /// The hold word of this index, or null where the block has no such word.
  std::atomic<std::uint32_t>* hold_word(BlockOffset block, std::uint32_t index) const;

  /// Adds a hold in the name of `word` (a tag, or a tag in transit). The caller has a hold on the
  /// block. Returns false where all words are taken: add_chunk() and try again.
  bool try_add_hold(BlockOffset block, std::uint32_t word, HoldRef& added) const;

  /// Links `chunk`, a block of type kHoldChunk, as further hold words of `block`.
  void add_chunk(BlockOffset block, BlockOffset chunk) const;

  /// Gives up a hold. Returns true where that was the last one *and* this caller is the one that has
  /// to free the block: it is then `kClosing` in the name of `closer`.
  bool drop_hold(const HoldRef& hold, ProcessTag closer) const;

  /// The second half of drop_hold: claims the block for closing where nobody holds it.
  bool try_close(BlockOffset block, ProcessTag closer) const;

  /// Calls visit(index, word) for each hold word, until it returns false.
  template <class Visit>
  void for_each_hold(BlockOffset block, Visit&& visit) const;

 private:
  std::byte* base_;
};

template <class Visit>
void BlockMemory::for_each_hold(BlockOffset block, Visit&& visit) const {
  HoldProtocol(*this).for_each_hold(block, std::forward<Visit>(visit));
}

}  // namespace shoal
