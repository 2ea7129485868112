// Blocks of the shared heap, where they lie, and the holds that decide when one is free.
#pragma once

#include <shoal/internal/ipc/heap/hold_protocol.h>
#include <shoal/internal/ipc/layout/block_header.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shoal {

/// What the protocol of holds (hold_protocol.h) needs to know of the memory it works on: where offset 0 is mapped.
class BlockMemory {
 public:
  explicit BlockMemory(std::byte* base) : base_(base) {}
  std::byte* base() const { return base_; }
  BlockHeader& header(BlockOffset block) const { return *reinterpret_cast<BlockHeader*>(base_ + block.value); }
  std::byte* payload(BlockOffset block) const { return base_ + header(block).payload; }
  /// Whether the block is further hold words of another one.
  bool is_chunk(BlockOffset block) const {
    return header(block).type.load(std::memory_order_relaxed) == BlockType::kHoldChunk;  // relaxed: after its state
  }
  HoldChunk& chunk(BlockOffset block) const { return *reinterpret_cast<HoldChunk*>(payload(block)); }

  /// The hold word of this index, or null if the block has no such word.
  std::atomic<std::uint32_t>* hold_word(BlockOffset block, std::uint32_t index) const;

  /// Adds a hold in the name of `word` (a tag, or a tag in transit). The caller has a hold on the
  /// block. Returns false if all words are taken: add_chunk() and try again.
  bool try_add_hold(BlockOffset block, std::uint32_t word, HoldRef& added) const;

  /// The first half of try_add_hold, by the block's visitor: see HoldProtocol::try_set_word.
  bool try_set_word(BlockOffset block, std::uint32_t word, HoldRef& added) const;

  /// Links `chunk`, a block of type kHoldChunk, as further hold words of `block`.
  void add_chunk(BlockOffset block, BlockOffset chunk) const;

  /// Gives up a hold. Returns true if that was the last one *and* this caller is the one that has
  /// to free the block: it is then `kClosing` in the name of `closer`.
  bool drop_hold(const HoldRef& hold, ProcessTag closer) const;

  /// The second half of drop_hold: claims the block for closing if nobody holds it.
  bool try_close(BlockOffset block, ProcessTag closer) const;

  /// Calls visit(index, word) for each hold word, until it returns false. By a caller that has a hold on the block, or
  /// that takes what it sees for a figure and writes nothing.
  template <class Visit>
  void for_each_hold(BlockOffset block, Visit&& visit) const;

  /// The holds of a live block whose words match, by a caller that has no hold on it: see HoldProtocol::find_holds.
  /// Empty if the block is not live.
  struct FoundHold {
    HoldRef ref;
    std::uint32_t word;
  };
  template <class Matches>
  std::vector<FoundHold> find_holds(BlockOffset block, Matches&& matches) const;

 private:
  std::byte* base_;
};

template <class Visit>
void BlockMemory::for_each_hold(BlockOffset block, Visit&& visit) const {
  HoldProtocol(*this).for_each_hold(block, std::forward<Visit>(visit));
}

template <class Matches>
std::vector<BlockMemory::FoundHold> BlockMemory::find_holds(BlockOffset block, Matches&& matches) const {
  std::vector<FoundHold> holds;
  // acquire: as in HoldProtocol::find_holds. It comes to an end: only an added hold, or the block's end, changes the
  // state.
  while (BlockHeader::kind(header(block).state.load(std::memory_order_acquire)) == BlockHeader::kLive) {
    holds.clear();
    if (HoldProtocol(*this).find_holds(block, matches, [&](std::uint32_t index, std::uint32_t word) {
          holds.push_back({HoldRef{block, index}, word});
        }))
      return holds;
  }
  return {};
}

}  // namespace shoal
