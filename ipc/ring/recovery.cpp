// What becomes of a ring's messages when their writer or reader is dead, or when nobody is left to read them.
#include <shoal/ipc/error.h>
#include <shoal/ipc/kill_point.h>
#include <shoal/ipc/ring.h>
#include <shoal/ipc/ring/cell_contents.h>
#include <shoal/ipc/session.h>

#include <utility>
#include <vector>

namespace shoal {

void discard_cell(Heap& heap, RingLayout& layout, std::uint32_t index, CellState seen) {
  std::uint64_t expected = seen.word;
  auto mine = CellState::make(CellState::kTaken, Session::current().self().slot(), seen.lap());
  if (!layout.cells()[index].state.compare_exchange_strong(expected, mine.word)) return;
  std::vector<Hold> held;
  try {
    CellContents contents(heap, layout.cells()[index]);
    held.reserve(contents.handles.size() + 1);
    for (const HoldRef& ref : contents.handles)
      if (heap.is_hold(ref, contents.sender.transit_word())) held.push_back(Hold::from_transit(ref));
    if (contents.spilled.block) held.push_back(Hold::from_transit(contents.spilled));
  } catch (const DecodeError&) {
    // The dead reader had taken the block over: that is reclaimed with it.
  }
  core_of(layout).release(RingTicket{seen.lap() << RingTicket::kIndexBits | index});
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
  for (std::uint32_t i = 0; i < layout.capacity; ++i) {
    CellState state = core.state(i);
    if (state.slot() != dead.slot()) continue;
    if (state.phase() == CellState::kTaken) {
      discard_cell(heap, layout, i, state);
    } else if (state.phase() == CellState::kClaimed && core.steal(i, state, Session::current().self().slot())) {
      // The writer got somewhere or nowhere; getters skip the cell, which keeps the order of the others.
      layout.cells()[i].flags = RingCell::kVoid;
      layout.cells()[i].handles = 0;
      RingTicket ticket{state.lap() << RingTicket::kIndexBits | i};
      if (layout.byte_capacity != 0) {
        // Where it starts, it ends. With a single cell, what the dead wrote there may be its own: as good a start.
        std::uint64_t start = layout.span(ticket.before(layout.capacity)).end.load();
        layout.span(ticket).start.store(start);
        layout.span(ticket).end.store(start);
      }
      core.publish(RingTicket{state.lap() << RingTicket::kIndexBits | i});
      layout.not_empty.notify_one();
    }
    SHOAL_KILL_POINT("ring.recover.cell");
  }
}

void Ring::for_each_message_hold(Heap& heap, BlockOffset block, const std::function<void(const HoldRef&)>& visit) {
  auto& layout = *reinterpret_cast<RingLayout*>(heap.memory().payload(block));
  auto core = core_of(layout);
  for (std::uint32_t i = 0; i < layout.capacity; ++i) {
    for (;;) {
      CellState before = core.state(i);
      if (before.phase() != CellState::kFull && before.phase() != CellState::kTaken) break;
      std::vector<HoldRef> found;
      try {
        CellContents contents(heap, layout.cells()[i]);
        found = std::move(contents.handles);
        if (contents.spilled.block) found.push_back(contents.spilled);
      } catch (const DecodeError&) {
        // Read while its reader was taking it apart: the state below has changed, or it took the block over.
      }
      // A read-modify-write, so that the reads above are not done after it (acq_rel: its release half).
      std::uint64_t after = layout.cells()[i].state.fetch_add(0, std::memory_order_acq_rel);
      if (after != before.word) continue;
      for (const HoldRef& ref : found) visit(ref);
      break;
    }
  }
}

}  // namespace shoal
