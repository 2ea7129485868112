// What becomes of a ring's messages when their writer or reader is dead, or when nobody is left to read them.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/ring/cell_contents.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/error.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

namespace shoal {

void discard_cell(Heap& heap, RingLayout& layout, std::uint32_t index, CellState seen) {
  // Memory first: once the cell is taken it has to go back. What is read before that is the message's if the cell's
  // state has not changed meanwhile, which the CAS says. So are the holds that are in transit before it: as long as a
  // cell is in the work of a dead process, nobody clears the words that it had made its own (SessionCore::reclaim), so
  // nobody makes a hold of another message of them. After the CAS its reclaimer may.
  std::vector<HoldRef> found;
  std::vector<Hold> held;
  try {
    const CellContents contents(heap, layout.cells()[index]);
    found.reserve(contents.handles.size() + 1);
    for (const HoldRef& ref : contents.handles)
      if (heap.is_hold(ref, contents.sender.transit_word())) found.push_back(ref);
    if (contents.spilled.block) found.push_back(contents.spilled);
    held.reserve(found.size());
  } catch (const DecodeError&) {
    // The dead reader had taken the block over: that is reclaimed with it.
    found.clear();
  }
  std::uint64_t expected = seen.word;
  auto mine = CellState::make(CellState::kTaken, Session::current().self().slot(), seen.lap());
  if (!layout.cells()[index].state.compare_exchange_strong(expected, mine.word)) return;
  SHOAL_KILL_POINT("ring.discard.taken");
  for (const HoldRef& ref : found) {
    held.push_back(Hold::from_transit(ref));
    SHOAL_KILL_POINT("ring.discard.hold");
  }
  core_of(layout).release(RingTicket::make(seen.lap(), index));
  notify_room(layout);
}

void Ring::drain(Heap& heap, BlockOffset block) noexcept {
  auto& layout = *reinterpret_cast<RingLayout*>(heap.memory().payload(block));
  for (std::uint32_t i = 0; i < layout.capacity; ++i) {
    CellState state = core_of(layout).state(i);
    if (state.phase() == CellState::kFull || state.phase() == CellState::kTaken) discard_cell(heap, layout, i, state);
  }
}

void Ring::recover(Heap& heap, BlockOffset block, ProcessTag dead) {
  auto& layout = *reinterpret_cast<RingLayout*>(heap.memory().payload(block));
  auto core = core_of(layout);
  struct Left {
    std::uint32_t index;
    CellState state;
  };
  std::vector<Left> left;
  for (std::uint32_t i = 0; i < layout.capacity; ++i)
    if (CellState state = core.state(i); state.is_work_of(dead.slot())) left.push_back({i, state});
  // The cells name a slot. They are the dead one's if nobody has taken the slot since; and from these very states on
  // they stay its, or are recovered by somebody else.
  if ((SessionCore::current().record(dead.slot()).generation.load() & ProcessTag::kGenerationMask) != dead.generation())
    return;
  SHOAL_KILL_POINT("ring.recover.found");
  for (const auto& [i, state] : left) {
    if (state.phase() == CellState::kTaken) {
      discard_cell(heap, layout, i, state);
    } else if (core.steal(i, state, Session::current().self().slot())) {
      // The writer got somewhere or nowhere; getters skip the cell, which keeps the order of the others.
      layout.cells()[i].flags = RingCell::kVoid;
      layout.cells()[i].handles = 0;
      const RingTicket ticket = RingTicket::make(state.lap(), i);
      if (layout.byte_capacity != 0) {
        // Where it starts, it ends. With a single cell, what the dead wrote there may be its own: as good a start.
        std::uint64_t start = layout.span(ticket.before(layout.capacity)).end.load();
        layout.span(ticket).start.store(start);
        layout.span(ticket).end.store(start);
      }
      core.publish(RingTicket::make(state.lap(), i));
      layout.not_empty.wake_all_for_the_dead();
    }
    SHOAL_KILL_POINT("ring.recover.cell");
  }
}

namespace {

/// The ring in this block, as far as its header can be believed.
RingLayout* ring_in(const Heap& heap, const BlockHeader& header) {
  if (header.type.load() != BlockType::kRing) return nullptr;
  const std::uint64_t size = header.size;
  const std::byte* at = heap.memory().base() + header.payload;
  if (size < sizeof(RingLayout) || !heap.is_inside(at, size)) return nullptr;
  auto* layout = reinterpret_cast<RingLayout*>(const_cast<std::byte*>(at));
  const std::uint32_t capacity = std::atomic_ref(layout->capacity).load(std::memory_order_relaxed);  // checked later
  return capacity < RingLayout::kLargestCapacity && RingLayout::bytes(capacity, 0) <= size ? layout : nullptr;
}

/// What is read before this comes before what is read after it.
void finish_reads() {
#if defined(__SANITIZE_THREAD__)
  asm volatile("" ::: "memory");  // TSan knows no fences, and gcc refuses them there
#else
  std::atomic_thread_fence(std::memory_order_acquire);  // acquire: of no store, but of all loads above
#endif
}

/// The holds of the message in a cell, if the cell is in the same state before and after.
std::vector<HoldRef> message_holds(const Heap& heap, const RingCell& cell, CellState& state) {
  for (;;) {
    state.word = cell.state.load(std::memory_order_acquire);  // A1 of the core: the contents are of this state
    if (state.phase() != CellState::kFull && state.phase() != CellState::kTaken) return {};
    std::vector<HoldRef> found;
    try {
      CellContents contents(heap, cell);
      found = std::move(contents.handles);
      if (contents.spilled.block) found.push_back(contents.spilled);
    } catch (const DecodeError&) {
      // Read while its reader was taking it apart: the state below has changed, or it took the block over. Where that
      // reader is dead, the block is what says so to whoever comes to recover the cell: it counts, too.
      if (cell.flags & RingCell::kInBlock) std::memcpy(&found.emplace_back(), cell.contents, sizeof(HoldRef));
    }
    finish_reads();  // the reads above come before the second look
    if (cell.state.load(std::memory_order_relaxed) == state.word) return found;  // relaxed: after the fence
  }
}

}  // namespace

Ring::Survey Ring::survey(const Heap& heap, BlockOffset block, ProcessTag process) {
  const BlockHeader& header = heap.memory().header(block);
  Survey survey;
  // Cell by cell, each between two equal looks at the block's state: whoever shares the ring all the time changes that
  // all the time, and would keep a look at all cells from its end. If the block becomes another ring in between,
  // what was found before is in nobody's way: those holds are the closer's, and `in_work` is looked at again.
  for (std::uint32_t i = 0;;) {
    // acquire: type and size are of this life, or of a later one.
    const std::uint64_t before = header.state.load(std::memory_order_acquire);
    const auto kind = BlockHeader::kind(before);
    if (kind != BlockHeader::kLive && kind != BlockHeader::kClosing) return {};
    RingLayout* layout = ring_in(heap, header);
    // As in ring_in.
    const std::uint32_t capacity = layout ? std::atomic_ref(layout->capacity).load(std::memory_order_relaxed) : 0;
    const bool ended = i >= capacity;
    CellState state;
    std::vector<HoldRef> found;
    if (!ended) {
      if (i == 0) SHOAL_KILL_POINT("ring.survey.seen");
      found = message_holds(heap, layout->cells()[i], state);
      SHOAL_KILL_POINT("ring.survey.cell");
    }
    finish_reads();  // all reads above come before the second look
    // The count of a header's state never comes back, so all of the above was read from the ring.
    if (header.state.load(std::memory_order_relaxed) != before) continue;  // relaxed: after the fence
    if (ended) return survey;
    survey.message_holds.insert(survey.message_holds.end(), found.begin(), found.end());
    survey.in_work |= state.is_work_of(process.slot());
    ++i;
  }
}

constinit const BlockKind kRingKind{
    .close = &Ring::drain,
    .holder_crashed =
        [](std::byte* payload) {
          auto& ring = *reinterpret_cast<RingLayout*>(payload);
          ring.crashes.fetch_add(1);
          ring.not_empty.wake_all_for_the_dead();
          ring.not_full.wake_all_for_the_dead();
        },
    .wait_name = [](std::uint64_t place) { return place == offsetof(RingLayout, not_full) ? "put" : "get"; },
};

}  // namespace shoal
