// Giving back what a dead process had. Every step is either an atomic step from a state that names the
// dead process, or repeatable: so any survivor may run it, twice, or be killed half-way.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/descriptor/offers.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/heap/block_visit.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/names/names.h>
#include <shoal/internal/ipc/process/death_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/log.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <unordered_set>

namespace shoal {
namespace {

struct HoldHash {
  std::size_t operator()(const HoldRef& ref) const { return ref.block.value * 31 + ref.word; }
};
struct HoldEqual {
  bool operator()(const HoldRef& a, const HoldRef& b) const { return a.block == b.block && a.word == b.word; }
};
using HoldSet = std::unordered_set<HoldRef, HoldHash, HoldEqual>;

/// A chunk of hold words that its dead maker had linked, but not yet marked as linked, is marked. Both blocks are sure:
/// the dead one held the chunk, and was adding a hold to the chunk's parent, which it had to hold or to visit for that.
void mark_linked_chunk(const Heap& heap, BlockOffset block, ProcessTag dead) {
  const BlockMemory memory = heap.memory();
  BlockHeader& header = memory.header(block);
  if (header.type != BlockType::kHoldChunk || header.holds[0].load() != dead.word() ||
      BlockHeader::kind(header.state.load()) != BlockHeader::kLive)
    return;
  const BlockOffset parent{memory.chunk(block).parent};
  // Where it died before it wrote that, this is whatever lay there before.
  if (!heap.extents().is_header(parent)) return;
  for (std::uint64_t next = memory.header(parent).overflow.load(); next != 0;
       next = memory.header(BlockOffset{next}).overflow.load())
    if (next == block.value) {
      // By CAS: if the parent has been closed meanwhile, the word is the closer's, or of a later block.
      std::uint32_t expected = dead.word();
      header.holds[0].compare_exchange_strong(expected, ProcessTag(ExtentRecord::kOrphan, 1).word());
      return;
    }
}

struct GivenUp {
  int holds = 0;
  bool left = false;   // something has to wait for the next time
  bool freed = false;  // the block, which nobody else held
};

/// Gives up the dead process's holds on a block, but for those to be kept. The block is live to the end of it, by a
/// visit: the holds alone are no warrant, since one that was lent may be adopted, and be dropped by who adopted it.
GivenUp give_up_holds(Heap& heap, BlockOffset block, ProcessTag dead, bool crashed, const HoldSet& kept) {
  const BlockMemory memory = heap.memory();
  const auto of_dead = [&](std::uint32_t word) { return ProcessTag::from_word(word) == dead; };
  auto holds = memory.find_holds(block, of_dead);
  GivenUp result;
  const auto keep = [&](auto& hold) {
    if (!kept.contains(hold.ref)) return false;
    result.left |= hold.word == dead.word();  // of a cell that somebody has yet to recover, or recovers just now
    return true;
  };
  std::erase_if(holds, keep);
  // It may have died as the block's visitor, before it had a hold: the visit is to be ended all the same.
  const std::uint64_t state = memory.header(block).state.load();
  const bool was_visitor =
      BlockHeader::kind(state) == BlockHeader::kLive && BlockHeader::is_visited_by(state, dead.slot());
  if (holds.empty() && !was_visitor) return result;
  SHOAL_KILL_POINT("reclaim.holds_found");
  BlockVisit visit = BlockVisit::with_patience(heap, block);
  if (!visit) {
    result.left |= visit.was_kept_out();
    return result;
  }
  holds = memory.find_holds(block, of_dead);  // once more: some may have been adopted
  const bool had_handle = std::ranges::any_of(holds, [&](auto& hold) { return hold.word == dead.word(); });
  std::erase_if(holds, keep);
  if (holds.empty()) {
    result.freed = visit.end();
    return result;
  }
  BlockHeader& header = memory.header(block);
  const BlockKind& kind = block_kind(header.type);
  if (kind.recover) kind.recover(memory.payload(block), dead);
  if (crashed && had_handle && kind.holder_crashed) kind.holder_crashed(memory.payload(block));
  for (const auto& [ref, word] : holds) {
    // It may have died between setting a word and counting it (invariant I2 of BlockHeader): count now.
    // acq_rel: the hold order of hold_protocol.h, by a reclaimer in the dead one's place.
    header.state.fetch_add(BlockHeader::kOneChange, std::memory_order_acq_rel);
    // By CAS, since one that was lent may be adopted at this moment (Hold::adopt).
    std::uint32_t expected = word;
    if (auto* hold = memory.hold_word(ref.block, ref.word))
      // seq_cst: as in drop_hold.
      hold->compare_exchange_strong(expected, 0, std::memory_order_seq_cst);
    SHOAL_KILL_POINT("reclaim.hold");
  }
  result.holds = int(holds.size());
  result.freed = visit.end();
  return result;
}

}  // namespace

bool SessionCore::reclaim(ProcessTag dead) {
  if (!dead || dead == self() || is_alive(dead)) return true;
  ProcessRecord& process = record(dead.slot());
  // What it was giving back itself when it died: nobody else may come to look for that one any more. The
  // chain ends, since each of its processes was dead before the one that was reclaiming it died.
  if (std::uint32_t unfinished = process.reclaiming.load();
      unfinished != 0 && (process.generation.load() & ProcessTag::kGenerationMask) == dead.generation())
    reclaim(ProcessTag::from_word(unfinished));
  // Before its holds: who looks up what it published counts on them as long as the name is there.
  if (!Names(*this).withdraw(dead)) return false;
  std::lock_guard lock(reclaim_mutex_);
  record(self().slot()).reclaiming = dead.word();
  struct Done {
    std::atomic<std::uint32_t>& reclaiming;
    ~Done() { reclaiming = 0; }
  } done{record(self().slot()).reclaiming};
  // The slot is this reclaimer's from here on: from kAlive, or from a reclaimer that died itself.
  const std::uint64_t mine = ProcessRecord::dead_by(self());
  for (;;) {
    std::uint64_t state = process.state.load();
    if ((process.generation.load() & ProcessTag::kGenerationMask) != dead.generation()) return true;
    if (!ProcessRecord::is_used(state)) return true;
    ProcessTag other = ProcessRecord::reclaimer_of(state);
    if (ProcessRecord::state_of(state) == ProcessRecord::kDead && other && other != self() && is_alive(other))
      return false;
    SHOAL_KILL_POINT("reclaim.before_claim");
    if (process.state.compare_exchange_strong(state, mine)) break;
  }
  // As long as nothing else is said: dead, and no living process's to reclaim. So is it if this one runs out of private
  // memory half-way; else it would keep everybody else off for as long as it lives.
  struct Claim {
    std::atomic<std::uint64_t>& state;
    std::uint64_t mine, becomes;
    ~Claim() { state.compare_exchange_strong(mine, becomes); }
  } claim{process.state, mine, ProcessRecord::dead_by(dead)};
  SHOAL_KILL_POINT("reclaim.claimed");
  const bool crashed = process.left.load() == 0;
  int holds = 0, blocks = 0;
  layout().deaths.fetch_add(1);
  // Ranks of groups wait for nothing that is given back below: they look at the state.
  if (crashed) wake_all_sleepers(*this);

  // 1. Chunks of hold words that it was linking: as long as all its holds are there, so is what they belong to.
  heap().for_each_block([&](BlockOffset block, BlockHeader&) { mark_linked_chunk(heap(), block, dead); });
  // 2. Cells that it was working on, and the holds that belong to messages in rings, or to cells that it was working on
  // and that are not for this process to recover.
  HoldSet kept;
  bool left = false;
  heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    if (header.type != BlockType::kRing) return;
    // A ring that it was emptying for good is this process's to touch, too: nobody else goes on with it.
    const std::uint64_t state = header.state.load(std::memory_order_acquire);  // acquire: the ring is of this life
    const bool was_closing =
        BlockHeader::kind(state) == BlockHeader::kClosing && BlockHeader::slot(state) == dead.slot();
    if (was_closing ||
        !heap().memory().find_holds(block, [&](std::uint32_t word) { return word == dead.word(); }).empty())
      Ring::recover(heap(), block, dead);
    Ring::Survey survey = Ring::survey(heap(), block, dead);
    kept.insert(survey.message_holds.begin(), survey.message_holds.end());
    left |= survey.in_work;
  });
  SHOAL_KILL_POINT("reclaim.rings_done");
  // 3. Its holds; then blocks that nobody holds any more, and those that it was closing.
  heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    std::uint64_t state = header.state.load(std::memory_order_acquire);  // acquire: its holds are of this life
    if (BlockHeader::kind(state) == BlockHeader::kLive) {
      const GivenUp given_up = give_up_holds(heap(), block, dead, crashed, kept);
      holds += given_up.holds;
      left |= given_up.left;
      blocks += given_up.freed;
      if (!given_up.freed && heap().memory().try_close(block, self())) {
        heap().finish_close(block);
        ++blocks;
      }
    } else if (BlockHeader::kind(state) == BlockHeader::kClosing && BlockHeader::slot(state) == dead.slot()) {
      if (header.state.compare_exchange_strong(state, BlockHeader::with(state, BlockHeader::kClosing, self().slot())))
        heap().finish_close(block);
    }
  });
  SHOAL_KILL_POINT("reclaim.blocks_done");
  // 4. Its extents.
  heap().reclaim_extents(dead);
  SHOAL_KILL_POINT("reclaim.extents_done");
  if (crashed) wake_all_sleepers(*this);  // those that were about to sleep when the others were woken
  if (holds > 0 || blocks > 0 || !left)
    log_info("gave back what process {} (pid {}, slot {}) had, which {}: {} holds, and {} blocks that nobody else held",
             std::string(process.name, ::strnlen(process.name, sizeof process.name)), process.pid.load(), dead.slot(),
             crashed ? "died" : "left", holds, blocks);
  // A cell that it was working on, in a ring that it had no hold on, is left to those that have one: see
  // Ring::recover_blocking_cell. Until then nobody else gets the slot that the cell names.
  if (!left) claim.becomes = ProcessRecord::kFree;
  return !left;
}

void Session::reclaim_all() {
  auto& core = static_cast<SessionCore&>(*this);
  for (std::uint32_t slot = 0, end = core.layout().slots_touched.load(); slot < end; ++slot) {
    const std::uint64_t state = core.record(slot).state.load();
    if (!ProcessRecord::is_used(state)) continue;
    const ProcessTag tag(slot, core.record(slot).generation.load());
    // The state once more: that generation may be of one that is just taking the slot, and would seem dead.
    if (core.record(slot).state.load() != state) continue;
    try {
      core.reclaim(tag);
    } catch (const std::bad_alloc&) {
      // Out of private memory in the middle: every step can be repeated, and the next one who looks does so. Whoever
      // waits and looks after others besides has to hear nothing of it.
    }
  }
}

void SessionCore::adopt_inherited_holds() {
  ProcessTag parent = forked_from();
  if (!parent) return;
  const BlockMemory memory = heap().memory();
  const auto is_parents = [&](std::uint32_t word) { return word == parent.word(); };
  heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    // The parent's events, and chunks, which have its name for a moment: no copy of a handle refers to them.
    if (header.type == BlockType::kTrace || header.type == BlockType::kHoldChunk) return;
    if (memory.find_holds(block, is_parents).empty()) return;
    SHOAL_KILL_POINT("reclaim.inherit.found");
    // The thread that forked gives nothing up meanwhile, but threads of shoal's own may (shoal-offers, shoal-pools), and
    // so does a parent's reclaimer. So the parent's hold is no warrant for the block, and this process visits it.
    HoldRef own;
    if (const BlockVisit visit(heap(), block); visit)
      own = heap().add_hold(visit, self().word());
    else
      return;
    std::size_t words = 0;
    memory.for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& word) {
      words += is_parents(word.load());
      return true;
    });
    if (words > 0) return heap().note_inherited(own, words);
    // It had been another block, or the parent's hold is gone.
    heap().drop(own);
  });
  // Its reclaimer, who gives up its holds one by one, may have been faster than the walk.
  if (!is_alive(parent)) throw Error("the process that forked this one died before this one had taken over its memory");
  DescriptorOffers::let_go_of_parents();
}

}  // namespace shoal
