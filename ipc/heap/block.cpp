#include <shoal/ipc/heap/block.h>
#include <shoal/ipc/kill_point.h>

namespace shoal {

// Every order below that says "hold order" serves invariant I2: a word's zero, once seen, must bring
// with it the change count that the same process bumped before it let go. Release on the word's
// store, acquire on its load, and read-modify-writes on `state`.

std::atomic<std::uint32_t>* BlockMemory::hold_word(BlockOffset block, std::uint32_t index) const {
  if (index < BlockHeader::kInlineHolds) return &header(block).holds[index];
  index -= BlockHeader::kInlineHolds;
  std::uint64_t next = header(block).overflow.load(std::memory_order_acquire);  // A1: pairs with R1
  for (; next != 0 && index >= kWordsPerChunk; index -= kWordsPerChunk)
    next = header(BlockOffset{next}).overflow.load(std::memory_order_acquire);  // A1
  if (next == 0) return nullptr;
  return &reinterpret_cast<HoldChunk*>(payload(BlockOffset{next}))->holds[index];
}

bool BlockMemory::try_add_hold(BlockOffset block, std::uint32_t word, HoldRef& added) const {
  bool found = false;
  for_each_hold(block, [&](std::uint32_t index, std::atomic<std::uint32_t>& hold) {
    std::uint32_t expected = hold.load(std::memory_order_relaxed);  // relaxed: the CAS decides
    if (expected != 0 || !hold.compare_exchange_strong(expected, word, std::memory_order_acq_rel)) return true;
    added = HoldRef{block, index};
    found = true;
    return false;
  });
  if (!found) return false;
  SHOAL_KILL_POINT("block.add.before_count");
  header(block).state.fetch_add(BlockHeader::kOneChange, std::memory_order_acq_rel);  // hold order
  return true;
}

void BlockMemory::add_chunk(BlockOffset block, BlockOffset chunk) const {
  std::atomic<std::uint64_t>* link = &header(block).overflow;
  for (;;) {
    std::uint64_t expected = 0;
    // R1: the chunk's words are zero before anyone finds it (A1).
    if (link->compare_exchange_strong(expected, chunk.value, std::memory_order_acq_rel)) return;
    link = &header(BlockOffset{expected}).overflow;  // somebody else linked one here: append to it
  }
}

bool BlockMemory::drop_hold(const HoldRef& hold, ProcessTag closer) const {
  // seq_cst, with the loads in try_close: of two processes that drop the last two holds at once, at least one
  // must see both words zero. With release and acquire each might see the other's word as it was before its own
  // store left the store buffer, and nobody would free the block.
  hold_word(hold.block, hold.word)->store(0, std::memory_order_seq_cst);
  SHOAL_KILL_POINT("block.drop.after_word");
  return try_close(hold.block, closer);
}

bool BlockMemory::try_close(BlockOffset block, ProcessTag closer) const {
  // After the caller's own word is zero the block may be freed and reused at any moment by someone
  // else. Looking at it is still safe: header memory stays header memory, and I3 catches the rest.
  BlockHeader& head = header(block);
  std::uint64_t before = head.state.load(std::memory_order_acquire);  // hold order
  for (;;) {
    if (BlockHeader::kind(before) != BlockHeader::kLive) return false;
    bool held = false;
    for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& word) {
      held = word.load(std::memory_order_seq_cst) != 0;  // hold order; see drop_hold
      return !held;
    });
    if (held) return false;
    std::uint64_t closing = BlockHeader::with(before, BlockHeader::kClosing, closer.slot());
    if (head.state.compare_exchange_strong(before, closing, std::memory_order_acq_rel)) return true;
    // Case 1: a hold was added and its adder's other holds dropped: look again.
    // Case 2: somebody else claimed it: the kind says so above.
  }
}

}  // namespace shoal
