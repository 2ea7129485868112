// The protocol of holds on a block: who may free it when.
#pragma once

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/layout/block_header.h>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

namespace shoal {

/// Adding and dropping holds by the invariants of BlockHeader. `Memory` says where the headers and chunks lie and
/// which atomics they are made of: the session's memory (BlockMemory), or a model checker's (tests/model). Has no
/// state of its own; all members may be called by anyone at any time, as far as the invariants allow. What a process
/// that dies half-way leaves behind is told by the hold words alone: see SessionCore::reclaim.
///
/// Every order below that says "hold order" serves invariant I2: a word's zero, once seen, must bring with it the
/// change count that the same process bumped before it let go. Release on the word's store, acquire on its load, and
/// read-modify-writes on `state`.
template <class Memory>
class HoldProtocol {
 public:
  using Header = std::remove_reference_t<decltype(std::declval<const Memory&>().header(BlockOffset{}))>;
  using Word = std::remove_reference_t<decltype(std::declval<Header&>().holds[0])>;

  explicit HoldProtocol(const Memory& memory) : memory_(memory) {}

  /// Calls visit(index, word) for each hold word, until it returns false. A chunk's own words are those of its header
  /// alone: what its `overflow` leads to is the rest of its parent's words, which are the parent's under other indices.
  template <class Visit>
  void for_each_hold(BlockOffset block, Visit&& visit) const {
    Header& head = memory_.header(block);
    std::uint32_t index = 0;
    for (auto& word : head.holds)
      if (!visit(index++, word)) return;
    // A1: pairs with R1 in add_chunk; the chunk's words were zeroed before it was linked.
    std::uint64_t next = head.overflow.load(std::memory_order_acquire);
    if (next != 0 && memory_.is_chunk(block)) return;
    while (next != 0) {
      for (auto& word : memory_.chunk(BlockOffset{next}).holds)
        if (!visit(index++, word)) return;
      next = memory_.header(BlockOffset{next}).overflow.load(std::memory_order_acquire);  // A1
    }
  }

  /// Calls found(index, word) for each hold word for which matches(word) is true, by a caller that has no hold on the
  /// block. True if the block was live all the time, with the same holds: then what was found are holds, and not
  /// whatever the memory of a chunk that has been freed is used for by now. Else what was found means nothing: once
  /// more.
  ///
  /// What is found stays a hold for as long as nobody gives it up. So who looks for the holds of a dead process, whose
  /// reclaimer it is, may rely on the block and its chunks from then on, until it clears the last one of them itself.
  template <class Matches, class Found>
  bool find_holds(BlockOffset block, Matches&& matches, Found&& found) const {
    Header& head = memory_.header(block);
    // acquire: type and holds are of this life, or of a later one.
    const std::uint64_t before = head.state.load(std::memory_order_acquire);
    if (BlockHeader::kind(before) != BlockHeader::kLive) return false;
    SHOAL_KILL_POINT("block.find.seen");
    bool in_chunk = false;
    for_each_hold(block, [&](std::uint32_t index, Word& hold) {
      const std::uint32_t word = hold.load(std::memory_order_acquire);  // acquire: the state is read after it
      in_chunk |= index >= std::size(head.holds);
      if (matches(word)) found(index, word);
      return true;
    });
    if (in_chunk) SHOAL_KILL_POINT("block.look.in_chunk");
    // A header's own words are never anything else. For the others the state has to be what it was: by I3 its count
    // never comes back, so the block was not closed, and its chunks not freed, before the words were read.
    return !in_chunk || head.state.load(std::memory_order_acquire) == before;  // acquire: as above
  }

  Word* hold_word(BlockOffset block, std::uint32_t index) const {
    auto& inline_holds = memory_.header(block).holds;
    if (index < std::size(inline_holds)) return &inline_holds[index];
    index -= std::uint32_t(std::size(inline_holds));
    std::uint64_t next = memory_.header(block).overflow.load(std::memory_order_acquire);  // A1
    if (next != 0 && memory_.is_chunk(block)) return nullptr;
    for (; next != 0; next = memory_.header(BlockOffset{next}).overflow.load(std::memory_order_acquire)) {  // A1
      auto& holds = memory_.chunk(BlockOffset{next}).holds;
      if (index < std::size(holds)) return &holds[index];
      index -= std::uint32_t(std::size(holds));
    }
    return nullptr;
  }

  bool try_add_hold(BlockOffset block, std::uint32_t word, HoldRef& added) const {
    if (!try_set_word(block, word, added)) return false;
    SHOAL_KILL_POINT("block.add.before_count");
    memory_.header(block).state.fetch_add(BlockHeader::kOneChange, std::memory_order_acq_rel);  // hold order
    return true;
  }

  /// The first half of try_add_hold, for the block's visitor: end_visit() counts the change.
  bool try_set_word(BlockOffset block, std::uint32_t word, HoldRef& added) const {
    bool found = false;
    for_each_hold(block, [&](std::uint32_t index, Word& hold) {
      if (index == std::size(memory_.header(block).holds)) SHOAL_KILL_POINT("block.add.in_chunk");
      std::uint32_t expected = hold.load(std::memory_order_relaxed);  // relaxed: the CAS decides
      if (expected != 0 || !hold.compare_exchange_strong(expected, word, std::memory_order_acq_rel)) return true;
      added = HoldRef{block, index};
      found = true;
      return false;
    });
    return found;
  }

  enum class Visited { kYes, kNotLive, kByAnother };
  /// The block stays live from here to end_visit(), though the caller has no hold on it (I5). kByAnother: `seen` is
  /// the state that names who visits it; if that process is dead, take_over_visit(seen).
  Visited try_visit(BlockOffset block, ProcessTag me, std::uint64_t& seen) const {
    auto& state = memory_.header(block).state;
    // acquire: type and holds are of this life.
    for (seen = state.load(std::memory_order_acquire);;) {
      if (BlockHeader::kind(seen) != BlockHeader::kLive) return Visited::kNotLive;
      if (BlockHeader::is_visited(seen)) return Visited::kByAnother;
      if (take_over_visit(block, me, seen)) return Visited::kYes;
    }
  }
  /// Makes the caller the visitor if the state is still what was seen. False: `seen` is what it is now.
  bool take_over_visit(BlockOffset block, ProcessTag me, std::uint64_t& seen) const {
    const std::uint64_t visited = BlockHeader::with(seen, BlockHeader::kLive, me.slot() + 1);
    // acquire: the words and chunks that are read next are those of this life, with all that its holders did to them.
    // release: as all changes; a closer that read the state before fails.
    return memory_.header(block).state.compare_exchange_strong(seen, visited, std::memory_order_acq_rel);
  }
  /// Afterwards the block stays only where it is held. If the caller has set no word, or a process that did is dead,
  /// try_close() has to follow: whoever dropped the last hold meanwhile left it to the visitor.
  void end_visit(BlockOffset block, ProcessTag me) const {
    // Nobody else changes the slot as long as the caller lives, so it can be taken off without a look.
    const std::uint64_t change = BlockHeader::kOneChange - BlockHeader::Slot::make(me.slot() + 1);
    // hold order: the words that the visitor set go before it. seq_cst: see try_close.
    memory_.header(block).state.fetch_add(change, std::memory_order_seq_cst);
  }

  void add_chunk(BlockOffset block, BlockOffset chunk) const {
    auto* link = &memory_.header(block).overflow;
    for (;;) {
      std::uint64_t expected = 0;
      // R1: the chunk's words are zero before anyone finds it (A1).
      if (link->compare_exchange_strong(expected, chunk.value, std::memory_order_acq_rel)) return;
      link = &memory_.header(BlockOffset{expected}).overflow;  // somebody else linked one here: append to it
    }
  }

  bool drop_hold(const HoldRef& hold, ProcessTag closer) const {
    // seq_cst, with the loads in try_close: of two processes that drop the last two holds at once, at least one
    // must see both words zero. With release and acquire each might see the other's word as it was before its own
    // store left the store buffer, and nobody would free the block.
    hold_word(hold.block, hold.word)->store(0, std::memory_order_seq_cst);
    SHOAL_KILL_POINT("block.drop.after_word");
    return try_close(hold.block, closer);
  }

  bool try_close(BlockOffset block, ProcessTag closer) const {
    // After the caller's own word is zero the block may be freed and reused at any moment by someone
    // else. Looking at it is still safe: header memory stays header memory, and I3 catches the rest.
    Header& head = memory_.header(block);
    for (;;) {
      // hold order. seq_cst, with end_visit: either the visitor, who looks at the words when it has ended its visit,
      // sees that the caller's is zero, or the caller sees no visitor.
      std::uint64_t before = head.state.load(std::memory_order_seq_cst);
      if (BlockHeader::kind(before) != BlockHeader::kLive) return false;
      if (BlockHeader::is_visited(before)) return false;  // who ends the visit closes it
      bool held = false;
      for_each_hold(block, [&](std::uint32_t, Word& word) {
        held = word.load(std::memory_order_seq_cst) != 0;  // hold order; see drop_hold
        return !held;
      });
      if (held) return false;
      std::uint64_t closing = BlockHeader::with(before, BlockHeader::kClosing, closer.slot());
      // acq: what every holder did to the block lies before the closer's work. rel: the holds were read before.
      if (head.state.compare_exchange_strong(before, closing, std::memory_order_acq_rel)) return true;
      // Case 1: a hold was added and its adder's other holds dropped: look again.
      // Case 2: somebody else claimed it: the kind says so above.
    }
  }

 private:
  const Memory& memory_;
};

}  // namespace shoal
