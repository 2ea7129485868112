// Giving back what a dead process had. Every step is either an atomic step from a state that names the
// dead process, or repeatable: so any survivor may run it, twice, or be killed half-way.
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/condition.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/kill_point.h>
#include <shoal/ipc/log.h>
#include <shoal/ipc/ring.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/session/layout.h>
#include <shoal/ipc/session/names.h>
#include <string.h>

#include <unordered_set>
#include <vector>

namespace shoal {
namespace {

struct HoldHash {
  std::size_t operator()(const HoldRef& ref) const { return ref.block.value * 31 + ref.word; }
};
struct HoldEqual {
  bool operator()(const HoldRef& a, const HoldRef& b) const { return a.block == b.block && a.word == b.word; }
};
using HoldSet = std::unordered_set<HoldRef, HoldHash, HoldEqual>;

bool is_ring(const BlockHeader& header) {
  auto kind = BlockHeader::kind(header.state.load(std::memory_order_acquire));  // acquire: the type is of this life
  return header.type == BlockType::kRing && (kind == BlockHeader::kLive || kind == BlockHeader::kClosing);
}

/// A chunk of hold words that its dead maker had linked, but not yet marked as linked.
bool is_linked_chunk(const BlockMemory& memory, BlockOffset block) {
  BlockOffset parent{reinterpret_cast<HoldChunk*>(memory.payload(block))->parent};
  if (!parent) return false;
  for (std::uint64_t next = memory.header(parent).overflow.load(); next != 0;
       next = memory.header(BlockOffset{next}).overflow.load())
    if (next == block.value) return true;
  return false;
}

template <class Layout>
Layout& payload_as(const BlockMemory& memory, BlockOffset block) {
  return *reinterpret_cast<Layout*>(memory.payload(block));
}

/// What a dead process had of the thing in this block comes back. Its hold still keeps the block, so that it is what
/// its type says; called again, there is nothing left to do.
void recover(const BlockMemory& memory, BlockOffset block, const BlockHeader& header, ProcessTag dead) {
  if (header.type == BlockType::kSemaphore) payload_as<SemaphoreLayout>(memory, block).recover(dead);
  if (header.type == BlockType::kCondition) payload_as<ConditionLayout>(memory, block).recover(dead);
}

/// A holder of this block crashed: those that wait on it look up.
void tell_others(const BlockMemory& memory, BlockOffset block, const BlockHeader& header) {
  if (header.type == BlockType::kRing) {
    auto& ring = payload_as<RingLayout>(memory, block);
    ring.crashes.fetch_add(1);
    ring.not_empty.notify_all();
    ring.not_full.notify_all();
  } else if (header.type == BlockType::kBarrier) {
    payload_as<BarrierLayout>(memory, block).break_it();
  } else if (header.type == BlockType::kSemaphore) {
    payload_as<SemaphoreLayout>(memory, block).crashes.fetch_add(1);
  } else if (header.type == BlockType::kEvent) {
    payload_as<EventLayout>(memory, block).crashes.fetch_add(1);
  } else if (header.type == BlockType::kCondition) {
    payload_as<ConditionLayout>(memory, block).crashes.fetch_add(1);
  }
}

/// How many those were.
int give_up_holds(Heap& heap, BlockOffset block, BlockHeader& header, ProcessTag dead, bool crashed,
                  const HoldSet& committed) {
  const BlockMemory memory = heap.memory();
  bool recovered = false, told = false;
  int given_up = 0;
  memory.for_each_hold(block, [&](std::uint32_t index, std::atomic<std::uint32_t>& hold) {
    // acquire: what the dead one did to the block lies before what its end does.
    std::uint32_t word = hold.load(std::memory_order_acquire);
    if (ProcessTag::from_word(word) != dead) return true;
    bool in_transit = word == dead.transit_word();
    // A message that it sent and that nobody has read yet lives on.
    if (in_transit && committed.contains(HoldRef{block, index})) return true;
    if (header.type == BlockType::kHoldChunk && index == 0 && is_linked_chunk(memory, block)) {
      hold.store(ProcessTag(ExtentRecord::kOrphan, 1).word());
      return true;
    }
    if (!recovered) recover(memory, block, header, dead);
    recovered = true;
    if (crashed && !in_transit && !told) {
      tell_others(memory, block, header);
      told = true;
    }
    // It may have died between setting a word and counting it (invariant I2 of BlockHeader): count now.
    // acq_rel, here and below: the hold order of hold_protocol.h, by a reclaimer in the dead one's place.
    header.state.fetch_add(BlockHeader::kOneChange, std::memory_order_acq_rel);
    // acq_rel: hold order.
    hold.compare_exchange_strong(word, 0, std::memory_order_acq_rel);
    ++given_up;
    SHOAL_KILL_POINT("reclaim.hold");
    return true;
  });
  return given_up;
}

}  // namespace

bool Session::reclaim(ProcessTag dead) {
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
    if (std::uint32_t(state) != ProcessRecord::kAlive && std::uint32_t(state) != ProcessRecord::kDead) return true;
    ProcessTag other = ProcessTag::from_word(std::uint32_t(state >> 32));
    if (std::uint32_t(state) == ProcessRecord::kDead && other && other != self() && is_alive(other)) return false;
    if (process.state.compare_exchange_strong(state, mine)) break;
  }
  const bool crashed = process.left.load() == 0;
  int holds = 0, blocks = 0;
  layout().deaths.fetch_add(1);

  // 1. Cells that it was working on, and the holds that belong to messages in rings.
  HoldSet committed;
  heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    if (!is_ring(header)) return;
    Ring::recover(heap(), block, dead);
    Ring::for_each_message_hold(heap(), block, [&](const HoldRef& ref) { committed.insert(ref); });
  });
  SHOAL_KILL_POINT("reclaim.rings_done");
  // 2. Its holds; then blocks that nobody holds any more, and those that it was closing.
  heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    std::uint64_t state = header.state.load(std::memory_order_acquire);  // acquire: its holds are of this life
    if (BlockHeader::kind(state) == BlockHeader::kLive) {
      holds += give_up_holds(heap(), block, header, dead, crashed, committed);
      if (heap().memory().try_close(block, self())) {
        heap().finish_close(block);
        ++blocks;
      }
    } else if (BlockHeader::kind(state) == BlockHeader::kClosing && BlockHeader::slot(state) == dead.slot()) {
      if (header.state.compare_exchange_strong(state, BlockHeader::with(state, BlockHeader::kClosing, self().slot())))
        heap().finish_close(block);
    }
  });
  SHOAL_KILL_POINT("reclaim.blocks_done");
  // 3. Its extents.
  heap().reclaim_extents(dead);
  SHOAL_KILL_POINT("reclaim.extents_done");
  log_info("gave back what process {} (pid {}, slot {}) had, which {}: {} holds, and {} blocks that nobody else held",
           std::string(process.name, ::strnlen(process.name, sizeof process.name)), process.pid.load(), dead.slot(),
           crashed ? "died" : "left", holds, blocks);
  std::uint64_t expected = mine;
  process.state.compare_exchange_strong(expected, ProcessRecord::kFree);
  return true;
}

bool Session::reclaim_dead_holders(BlockOffset block) {
  const std::uint32_t me = self().word();
  bool others = false;
  std::vector<ProcessTag> dead;
  heap().memory().for_each_hold(block, [&](std::uint32_t, std::atomic<std::uint32_t>& hold) {
    std::uint32_t word = hold.load(std::memory_order_acquire);  // acquire: is_alive() asks after this
    ProcessTag tag = ProcessTag::from_word(word);
    if (word == 0 || word == me) return true;
    if (word != tag.word() || is_alive(tag))
      others = true;  // in transit: whoever receives it will be there
    else
      dead.push_back(tag);
    return true;
  });
  for (ProcessTag tag : dead) reclaim(tag);
  return others;
}

void Session::reclaim_all() {
  for (std::uint32_t slot = 0, end = layout().slots_touched.load(); slot < end; ++slot) {
    auto state = std::uint32_t(record(slot).state.load());
    if (state == ProcessRecord::kAlive || state == ProcessRecord::kDead)
      reclaim(ProcessTag(slot, record(slot).generation.load()));
  }
}

void Session::adopt_inherited_holds() {
  ProcessTag parent = forked_from();
  if (!parent) return;
  std::vector<HoldRef> inherited;
  heap().for_each_block([&](BlockOffset block, BlockHeader& header) {
    // acquire: type and holds are of this life.
    if (BlockHeader::kind(header.state.load(std::memory_order_acquire)) != BlockHeader::kLive) return;
    if (header.type == BlockType::kTrace) return;  // the parent's events: no copy of a handle refers to them
    heap().memory().for_each_hold(block, [&](std::uint32_t index, std::atomic<std::uint32_t>& hold) {
      // acquire: as in give_up_holds.
      if (hold.load(std::memory_order_acquire) == parent.word()) inherited.push_back(HoldRef{block, index});
      return true;
    });
  });
  for (const HoldRef& ref : inherited) heap().note_inherited(heap().add_hold(ref.block, self().word()));
}

}  // namespace shoal
