// The protocol of extents: who may change an extent's word from what to what.
#pragma once

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/layout/block_header.h>
#include <shoal/internal/ipc/layout/extent_state.h>

#include <cstdint>

namespace shoal {

/// What becomes of the pages of an extent that is given up.
enum class ExtentPages { kKeep, kGiveBack };

/// Every change of an extent's word, one function each. All are CASes from the exact word that was read, generation
/// included, so each has one winner, and one that comes late fails. `me` is the caller's slot. A large block's header
/// takes part: while its extent is kHead, the header's state says who may take the run apart.
///
///   word                     becomes            by whom
///   kCold, kWarm             kClaimed(me)       anyone
///   kClaimed(me)             kWarm, kCold       me; kCold after the pages went back
///   kClaimed(me)             kSmall(me)         me
///   kClaimed(me)             kHead(me), kTail   me, the head first, after the first block's header is kMaking(me)
///   kSmall(me)               kWarm              me, if no block of it is live or closing
///   kSmall(orphan)           kSmall(me)         anyone; and back, by me
///   kHead(any)               kCut(me)           whose slot the header names as kReleasing
///   kTail of a run I cut     kWarm, kCold       me; the last tail first
///   kCut(me)                 kWarm, kCold       me, when no tail is left
///   kClaimed(dead)           kWarm              who reclaims the dead one
///   kSmall(dead)             kSmall(orphan)     likewise; or kWarm, if no block of it is in use
///   kHead(dead)              kHead(orphan)      likewise; or kCut(me), if its header is kMaking or kReleasing(dead)
///   kCut(dead)               kCut(me)           likewise
///
///   header of a kHead        becomes            by whom
///   kMaking(me)              kLive              me, the owner
///   kLive, kClosing          by the protocol of holds (hold_protocol.h), which ends in kFree
///   kFree                    kMaking(me)        the owner, who uses the run again
///   kFree                    kReleasing(me)     anyone, who now has to take the run apart
///   kMaking(dead)            kReleasing(me)     who reclaims the dead one
///   kReleasing(dead)         kReleasing(me)     likewise
///
/// Invariants:
///  I1 A word with a living owner's slot and one of kClaimed, kSmall, kCut is changed by that process alone, so what it
///     says stays true for as long as the owner does nothing.
///  I2 kHead is published after its header became kMaking. So a kFree that is seen in the header, and then kHead in the
///     word, with the header unchanged afterwards, is the end of a life under this very kHead: no earlier life's state
///     is ever taken for it.
///  I3 A run is taken apart by one process: the one that the header's kReleasing names, and from kCut on the one that
///     the word names. Until kCut the word may still change owner (kHead(dead) to orphan): the releaser goes on from
///     what it finds. A tail is part of the run exactly if its distance leads to the kCut: a later run's tail at the
///     same place leads to another head.
///  I4 What a dead process left half done is told by words and headers that name it; its reclaimer first makes them its
///     own, and is one process at a time (ProcessRecord::state).
///
/// `Memory` says where the words and headers lie and which atomics they are made of: the session's (Extents), or a
/// model checker's (tests/model). It also gives pages back to the system. Threads and processes: any.
template <class Memory>
class ExtentProtocol {
 public:
  using Pages = ExtentPages;
  struct Claimed {
    std::uint64_t got = 0;
    std::uint64_t cold = 0;  // of these
  };

  ExtentProtocol(const Memory& memory, std::uint32_t me) : memory_(memory), me_(me) {}

  ExtentState state(std::uint64_t extent) const { return {memory_.extent(extent).load()}; }

  /// Claims `count` neighbours, or the first few of them: then the rest is somebody else's, and those got are to be
  /// given back by unclaim().
  Claimed claim(std::uint64_t first, std::uint64_t count, bool cold_too) const {
    Claimed claimed;
    for (; claimed.got < count; ++claimed.got) {
      const ExtentState seen = state(first + claimed.got);
      const bool cold = seen.use() == ExtentRecord::kCold;
      if (seen.use() != ExtentRecord::kWarm && !(cold && cold_too)) break;
      if (!change(first + claimed.got, seen, seen.next(ExtentRecord::kClaimed, me_))) break;
      claimed.cold += cold;
      SHOAL_KILL_POINT("extents.claim.one");
    }
    return claimed;
  }
  /// True if the extent is cold afterwards.
  bool unclaim(std::uint64_t extent, Pages pages) const {
    const ExtentState seen = state(extent);
    return seen.is(ExtentRecord::kClaimed, me_) && free_one(extent, seen, pages);
  }

  /// Claimed extents become small blocks of a class; false if they are not this process's (it was declared dead).
  [[nodiscard]] bool make_small(std::uint64_t extent, std::uint32_t size_class) const {
    const ExtentState seen = state(extent);
    return seen.is(ExtentRecord::kClaimed, me_) &&
           change(extent, seen, seen.next(ExtentRecord::kSmall, me_, size_class));
  }
  /// Claimed extents become a large block whose header is kMaking; false as above.
  [[nodiscard]] bool make_large(std::uint64_t head, std::uint64_t run) const {
    // The header may be left from any earlier use of the extent. Nobody else changes it while the extent is claimed.
    auto& header = memory_.head_state(head);
    header.store(BlockHeader::with(header.load(), BlockHeader::kMaking, me_));
    SHOAL_KILL_POINT("extents.large.closed");
    // The head first: dead from here on, its reclaimer finds the rest of the run claimed by the dead one.
    for (std::uint64_t distance = 0; distance < run; ++distance) {
      const ExtentState seen = state(head + distance);
      const ExtentState made =
          distance == 0 ? seen.next(ExtentRecord::kHead, me_, run) : seen.next(ExtentRecord::kTail, 0, distance);
      if (!seen.is(ExtentRecord::kClaimed, me_) || !change(head + distance, seen, made)) return false;
      SHOAL_KILL_POINT("extents.large.one");
    }
    return true;
  }
  /// The owner uses a free large block again: its header is kMaking then. False if it is not free, or is not this
  /// process's run of this length any more.
  bool reuse_large(std::uint64_t head, std::uint64_t run) const {
    auto& header = memory_.head_state(head);
    std::uint64_t seen = header.load(std::memory_order_acquire);  // acquire: the word is not read before it
    // The word after the header: were the run given away later than this look, the header would have changed (I2).
    if (BlockHeader::kind(seen) != BlockHeader::kFree || !state(head).is(ExtentRecord::kHead, me_, run)) return false;
    // acq_rel: what the last holder did to the block lies before what is done to it now; and as all changes.
    constexpr auto kOrder = std::memory_order_acq_rel;
    return header.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kMaking, me_), kOrder);
  }

  /// The owner gives up an extent of small blocks, none of which is in use; false if it is not its own.
  bool release_small(std::uint64_t extent, std::uint32_t size_class) const {
    const ExtentState seen = state(extent);
    if (!seen.is(ExtentRecord::kSmall, me_, size_class)) return false;
    free_one(extent, seen, Pages::kKeep);
    return true;
  }
  /// Takes over an extent of small blocks that a dead process left.
  bool adopt_small(std::uint64_t extent, ExtentState seen) const {
    return seen.is(ExtentRecord::kSmall, ExtentRecord::kOrphan) &&
           change(extent, seen, seen.next(ExtentRecord::kSmall, me_, seen.size_class()));
  }
  /// The other way round, for one that was taken over.
  void orphan_small(std::uint64_t extent) const {
    const ExtentState seen = state(extent);
    if (seen.is(ExtentRecord::kSmall, me_))
      change(extent, seen, seen.next(ExtentRecord::kSmall, ExtentRecord::kOrphan, seen.size_class()));
  }

  /// Makes the extents of a large block free, if that block is; false if it is not, or somebody else was first.
  bool release_large(std::uint64_t head, Pages pages) const {
    auto& header = memory_.head_state(head);
    std::uint64_t seen = header.load();
    // The word after the header: see I2.
    if (BlockHeader::kind(seen) != BlockHeader::kFree || state(head).use() != ExtentRecord::kHead) return false;
    if (!header.compare_exchange_strong(seen, BlockHeader::with(seen, BlockHeader::kReleasing, me_))) return false;
    SHOAL_KILL_POINT("extents.release.won");
    cut(head, pages);
    return true;
  }

  enum class Reclaimed { kDone, kTellOwner };
  /// What a dead process had to do with this extent. in_use(state): whether a block of this extent of small ones is
  /// live or closing. kTellOwner: it freed another's large block, and may have died before it said so. Repeatable.
  template <class InUse>
  Reclaimed reclaim(std::uint64_t extent, std::uint32_t dead, InUse&& in_use) const {
    for (;;) {
      const ExtentState seen = state(extent);
      const bool own = seen.owner() == dead;
      switch (seen.use()) {
        case ExtentRecord::kClaimed:
          if (own) free_one(extent, seen, Pages::kKeep);
          return Reclaimed::kDone;
        case ExtentRecord::kCut:
          if (!own) return Reclaimed::kDone;
          if (change(extent, seen, seen.next(ExtentRecord::kCut, me_, seen.run()))) free_cut(extent, Pages::kKeep);
          return Reclaimed::kDone;
        case ExtentRecord::kSmall:
          if (!own) return Reclaimed::kDone;
          // Nobody else allocates in it, so free now is free for good.
          if (!in_use(seen))
            free_one(extent, seen, Pages::kKeep);
          else
            change(extent, seen, seen.next(ExtentRecord::kSmall, ExtentRecord::kOrphan, seen.size_class()));
          return Reclaimed::kDone;
        case ExtentRecord::kHead:
          break;
        default:
          return Reclaimed::kDone;
      }
      auto& header = memory_.head_state(extent);
      std::uint64_t block = header.load();
      const BlockHeader::Kind kind = BlockHeader::kind(block);
      const bool named = BlockHeader::slot(block) == dead;
      if (named && (kind == BlockHeader::kMaking || kind == BlockHeader::kReleasing)) {
        // Case 1: it died while it made the run, or while it took one apart.
        if (!header.compare_exchange_strong(block, BlockHeader::with(block, BlockHeader::kReleasing, me_))) continue;
        SHOAL_KILL_POINT("extents.reclaim.won");
        cut(extent, Pages::kKeep);
        return Reclaimed::kDone;
      }
      if (own) {
        // Case 2: a block that others hold or release, or a free one that the dead process kept for itself. Whoever
        // frees it after this line sees the orphan and releases it; whoever did before is seen by the line after.
        if (!change(extent, seen, seen.next(ExtentRecord::kHead, ExtentRecord::kOrphan, seen.run()))) continue;
        SHOAL_KILL_POINT("extents.reclaim.orphaned");
        release_large(extent, Pages::kKeep);
        return Reclaimed::kDone;
      }
      if (!named || kind != BlockHeader::kFree) return Reclaimed::kDone;
      // Case 3: it freed another's block.
      if (seen.owner() != ExtentRecord::kOrphan) return Reclaimed::kTellOwner;
      release_large(extent, Pages::kKeep);
      return Reclaimed::kDone;
    }
  }

 private:
  bool change(std::uint64_t extent, ExtentState from, ExtentState to) const {
    // seq_cst, as all of this: nothing here is on the fast path, and I2 and reclaim's case 2 need a total order of
    // changes to a word and to the header.
    return memory_.extent(extent).compare_exchange_strong(from.word, to.word);
  }

  /// The extent's pages are nobody's, since `from` says that they are this process's to free. True if it is cold
  /// afterwards.
  bool free_one(std::uint64_t extent, ExtentState from, Pages pages) const {
    // Looked at only now: a mark is set by who holds a block of the extent, and nobody does any more. One that is not
    // there does not come.
    const bool cold = pages == Pages::kGiveBack && !memory_.is_pinned(extent) && memory_.give_back(extent);
    SHOAL_KILL_POINT("extents.free.one");
    if (!change(extent, from, from.next(cold ? ExtentRecord::kCold : ExtentRecord::kWarm))) return false;
    if (cold) memory_.went_cold();
    return cold;
  }

  /// By whose slot is in the header as kReleasing: the run becomes this process's, whatever its owner, and is freed.
  void cut(std::uint64_t head, Pages pages) const {
    for (;;) {
      const ExtentState seen = state(head);
      if (seen.use() != ExtentRecord::kHead) return;
      if (change(head, seen, seen.next(ExtentRecord::kCut, me_, seen.run()))) break;
      // Its owner died, and the run is an orphan now: no matter.
    }
    SHOAL_KILL_POINT("extents.release.cut");
    free_cut(head, pages);
  }

  void free_cut(std::uint64_t head, Pages pages) const {
    const ExtentState first = state(head);
    if (!first.is(ExtentRecord::kCut, me_)) return;
    for (std::uint64_t distance = first.run() - 1; distance > 0; --distance) {
      // Others may have it already, if this is the work of a dead process that is gone on with; see I3.
      const ExtentState tail = state(head + distance);
      if (tail.use() == ExtentRecord::kTail && tail.run() == distance) free_one(head + distance, tail, pages);
      SHOAL_KILL_POINT("extents.release.tail");
    }
    // The head goes last: until then a reclaimer finds the run through it.
    free_one(head, first, pages);
  }

  const Memory& memory_;
  const std::uint32_t me_;
};

}  // namespace shoal
