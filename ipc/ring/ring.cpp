#include <shoal/internal/ipc/ring/ring.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/spin.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/heap/other_holders.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/ring/cell_contents.h>
#include <shoal/internal/ipc/ring/task_ledger.h>
#include <shoal/internal/ipc/trace/sleep_note.h>
#include <shoal/ipc/trace_span.h>
#include <string.h>

#include <new>
#include <utility>
#include <vector>

namespace shoal {
namespace {

std::uint32_t self_slot() { return Session::current().self().slot(); }

/// Says what is there: most likely it was given up by somebody who should not have.
[[noreturn, gnu::cold, gnu::noinline]] void fail_foreign_handle(const Heap& heap, const HoldRef& ref,
                                                                std::uint32_t expected) {
  std::string there = "it lies in no block's header";
  if (heap.extents().is_header(ref.block)) {
    const BlockHeader& header = heap.memory().header(ref.block);
    auto* word = heap.memory().hold_word(ref.block, ref.word);
    there =
        fmt::format("there is {}, state {:#x}, type {}", word ? fmt::format("{:#010x}", word->load()) : "no such word",
                    header.state.load(), std::uint32_t(header.type.load()));
  }
  throw DecodeError(fmt::format("a handle that is not the message's own: hold {} of block {:#x} should be {:#010x}; {}",
                                ref.word, ref.block.value, expected, there));
}

}  // namespace

Ring::Ring(Hold hold) : hold_(std::move(hold)), layout_(reinterpret_cast<RingLayout*>(hold_.data())) {}

Ring Ring::create(std::uint32_t capacity, std::uint64_t schema, std::uint64_t byte_capacity, std::string_view name) {
  if (capacity == 0 || capacity >= RingLayout::kLargestCapacity)
    throw std::invalid_argument(
        fmt::format("capacity is {}: give 1 to {} messages", capacity, RingLayout::kLargestCapacity - 1));
  Hold hold = allocate_shared(RingLayout::bytes(capacity, byte_capacity), BlockType::kBytes);
  auto* layout = new (hold.data()) RingLayout{};
  layout->magic = RingLayout::kMagic;
  layout->version = RingLayout::kVersion;
  layout->schema = schema;
  layout->capacity = capacity;
  layout->byte_capacity = byte_capacity;
  name.copy(layout->name, sizeof layout->name - 1);
  for (std::uint32_t i = 0; i < capacity; ++i) {
    new (&layout->cells()[i].state) std::atomic<std::uint64_t>(0);
    if (byte_capacity != 0) new (&layout->span({i})) RingSpan{};
  }
  // Only now is it a ring to those that walk the heap. release: the layout above goes before.
  Session::current().heap().memory().header(hold.block()).type.store(BlockType::kRing, std::memory_order_release);
  return Ring(std::move(hold));
}

Ring Ring::open(Hold hold, std::uint64_t schema) {
  auto& header = Session::current().heap().memory().header(hold.block());
  if (header.type != BlockType::kRing) throw DecodeError("this block of shared memory is no queue");
  Ring ring(std::move(hold));
  const RingLayout& layout = ring.layout();
  if (layout.magic != RingLayout::kMagic || layout.version != RingLayout::kVersion)
    throw DecodeError(fmt::format(
        "this queue was made by another version of shoal: its layout is {:x}, version {}; here {:x}, version {}: "
        "build both programs with the same one",
        layout.magic, layout.version, RingLayout::kMagic, RingLayout::kVersion));
  if (layout.schema != schema)
    throw DecodeError(
        fmt::format("this queue carries another type: schema {:016x}, here {:016x}", layout.schema, schema));
  return ring;
}

void Ring::note_message(TraceKind kind, std::uint64_t since, RingTicket ticket, std::uint64_t bytes) const {
  trace::write(kind, since, trace::now(), layout().name, hold_.block().value, ticket.word, bytes);
}

/// Whether the operation before this one, of this thread, was of the same side: then it is one side of a stream, not of
/// questions and answers.
bool Ring::streams(Side side) {
  static thread_local Side last = Side::kPut;
  return std::exchange(last, side) == side;
}

/// Tries until attempt(state) succeeds; `state` is otherwise the cell in the way. What most operations need is small
/// and inlined; the rest is a function of its own, so that it takes no registers and no code of theirs.
template <class Attempt>
RingStatus Ring::wait(Side side, Deadline deadline, Attempt&& attempt) {
  CellState state;
  const bool stream = streams(side);
  if ((side == Side::kGet || !is_closed()) && attempt(state)) [[likely]]
    return RingStatus::kDone;
  return wait_on(side, deadline, stream,
                 [&](CellState& blocking) __attribute__((noinline)) { return attempt(blocking); });
}

template <class Attempt>
[[gnu::noinline]] RingStatus Ring::wait_on(Side side, Deadline deadline, bool stream, Attempt&& attempt) {
  CellState state;
  EventWord& event = side == Side::kPut ? layout().not_full : layout().not_empty;
  Spinner spinner;
  if (stream && !deadline.passed()) spinner.let_run_ahead();
  bool slept = false, looked = false;
  SleepNote note;
  LivenessWatch watch;
  // For one that slept: others may sleep still, and one wake-up may stand for several messages (or places): pass it on.
  const auto leave = [&] {
    event.leave();
    const bool more = side == Side::kPut ? size() < capacity() : size() > 0;
    if (more) event.notify_one();
  };
  for (;;) {
    // Looked at before the attempt: closed and then nothing there means drained for good.
    bool closed = is_closed();
    if (closed && side == Side::kPut) return RingStatus::kClosed;
    if (attempt(state)) break;
    if (closed && state.phase() == CellState::kEmpty) return RingStatus::kClosed;
    if (deadline.passed()) {
      if (recover_blocking_cell(state)) continue;
      if (looked || !is_work_of_another(state)) {
        if (slept) leave();  // it may have been woken for a message that another one has taken
        return RingStatus::kTimedOut;
      }
      watch.woke();  // who never sleeps takes its turn, too: nobody else may look after who is in its way
      looked = true;
      continue;
    }
    if (!slept && spinner.turn()) continue;
    std::uint32_t prepared = event.prepare();
    if (attempt(state)) break;
    if (is_closed() != closed) continue;
    if (slept && recover_blocking_cell(state)) continue;
    if (slept && layout().crashes.load() > 0 && !is_held_by_others(hold_.block())) {
      if (attempt(state)) break;  // the last thing they did
      return RingStatus::kPeersDied;
    }
    note.asleep_on(&event);
    event.sleep(prepared, deadline.left(watch.nap()));
    slept = true;
    watch.woke();
  }
  spinner.ended(!slept);
  if (slept) leave();
  return RingStatus::kDone;
}

bool Ring::is_work_of_another(CellState state) { return state.is_work_of(state.slot()) && state.slot() != self_slot(); }

/// If a dead process had no hold on the ring that it worked on (a copy of a handle that was never adopted after a
/// fork), its reclaimer may not touch the cell, and leaves it to those that have one: it stays dead until then.
bool Ring::recover_blocking_cell(CellState state) {
  if (!is_work_of_another(state)) return false;
  SessionCore& session = SessionCore::current();
  const ProcessRecord& process = session.record(state.slot());
  const ProcessTag owner(state.slot(), process.generation.load());
  if (ProcessRecord::state_of(process.state) != ProcessRecord::kDead) return false;
  recover(session.heap(), hold_.block(), owner);
  return true;
}

/// Whether a message of `charge` bytes may be the ticket's. What lies before it in the ring is known once
/// the cell before it is written, and only gets less.
bool Ring::admits(RingTicket ticket, std::uint64_t charge, CellState& state) {
  auto core = core_of(layout());
  const RingTicket before = ticket.before(capacity());
  CellState last = core.state(before.index());
  if (last.ahead_of(before.lap()) < 0 || (last.ahead_of(before.lap()) == 0 && last.phase() == CellState::kClaimed)) {
    state = last;
    return false;
  }
  CellState first;
  RingTicket head = core.oldest(first);
  if (head.word == ticket.word) return true;  // empty
  // relaxed: the states above, read by seq_cst, brought the spans with them (R1 of the core).
  std::uint64_t end = layout().span(before).end.load(std::memory_order_relaxed);
  // relaxed: likewise.
  std::uint64_t start = layout().span(head).start.load(std::memory_order_relaxed);
  if (end - start + charge <= layout().byte_capacity) return true;
  state = first;
  return false;
}

void Ring::write(RingTicket ticket, Encoder& message, const HoldRef& spilled, std::uint64_t charge) {
  RingCell& cell = layout().cells()[ticket.index()];
  if (layout().byte_capacity != 0) {
    RingSpan& span = layout().span(ticket);
    const RingSpan& last = layout().span(ticket.before(capacity()));
    const std::uint64_t start = last.end.load(std::memory_order_relaxed);  // relaxed: ours since the cell is
    span.start.store(start, std::memory_order_relaxed);                    // relaxed: published with the cell
    span.end.store(start + charge, std::memory_order_relaxed);             // relaxed: published with the cell
  }
  cell.size = message.bytes().size();
  cell.handles = std::uint16_t(message.handles().size());
  cell.sender = Session::current().self().word();
  cell.flags = spilled.block ? RingCell::kInBlock : RingCell::kInline;
  if (spilled.block)
    std::memcpy(cell.contents, &spilled, sizeof spilled);
  else
    message.copy_to(cell.contents);
}

RingStatus Ring::put(Encoder& message, Deadline deadline, TaskLedger* tasks) {
  const std::uint64_t traced_since = trace::is_on() ? trace::now() : 0;
  if (message.handles().size() > UINT16_MAX)
    throw std::invalid_argument(fmt::format("a message with {} handles (tensors, queues, ...): at most {} fit",
                                            message.handles().size(), UINT16_MAX));
  Hold* block = message.total() > RingCell::kInlineBytes ? &message.in_block() : nullptr;
  std::uint64_t charge = 0;
  if (layout().byte_capacity != 0) {
    charge = message.bytes().size();
    for (const HoldRef& ref : message.handles()) charge += Session::current().heap().memory().header(ref.block).size;
  }
  auto core = core_of(layout());
  const std::uint32_t slot = self_slot();
  RingTicket ticket;
  const auto claim = [&](CellState& state) __attribute__((always_inline)) {
    return core.claim(slot, ticket, state) == ProcessRingCore::Outcome::kClaimed;
  };
  const auto claim_if_admitted = [&](CellState& state) {
    return core.claim(slot, ticket, state, [&](RingTicket wanted, CellState& blocking) {
      return admits(wanted, charge, blocking);
    }) == ProcessRingCore::Outcome::kClaimed;
  };
  const RingStatus status =
      layout().byte_capacity == 0 ? wait(Side::kPut, deadline, claim) : wait(Side::kPut, deadline, claim_if_admitted);
  if (status != RingStatus::kDone) return status;
  SHOAL_KILL_POINT("ring.put.claimed");
  ahead_of_put_.claimed(layout(), ticket, layout().head);
  HoldRef spilled;
  if (block) spilled = std::move(*block).into_transit();
  write(ticket, message, spilled, charge);
  SHOAL_KILL_POINT("ring.put.written");
  if (tasks) tasks->added();
  core.publish(ticket);
  message.sent();
  SHOAL_KILL_POINT("ring.put.published");
  layout().not_empty.notify_one();
  if (traced_since != 0) [[unlikely]]
    note_message(TraceKind::kPut, traced_since, ticket, message.bytes().size());
  return RingStatus::kDone;
}

RingStatus Ring::get(Received& message, Deadline deadline, TaskLedger* tasks) {
  const std::uint64_t traced_since = trace::is_on() ? trace::now() : 0;
  auto core = core_of(layout());
  const std::uint32_t slot = self_slot();
  for (;;) {
    RingTicket ticket;
    RingStatus status = wait(Side::kGet, deadline, [&](CellState& state) __attribute__((always_inline)) {
      return core.take(slot, ticket, state) == ProcessRingCore::Outcome::kClaimed;
    });
    if (status != RingStatus::kDone) return status;
    SHOAL_KILL_POINT("ring.get.taken");
    ahead_of_get_.claimed(layout(), ticket, layout().tail);
    if (!take_out(ticket, message, tasks)) continue;
    if (traced_since != 0) [[unlikely]]
      note_message(TraceKind::kGet, traced_since, ticket, message.size_);
    return RingStatus::kDone;
  }
}

bool Ring::is_ready() {
  auto core = core_of(layout());
  for (;;) {
    bool closed = is_closed();
    CellState state;
    RingTicket ticket = core.oldest(state);
    if (state.ahead_of(ticket.lap()) < 0 || state.phase() != CellState::kFull)
      return closed && state.phase() == CellState::kEmpty;
    // The flags may be read while somebody else takes the cell: then the cell's state has changed below.
    bool is_void = layout().cells()[ticket.index()].flags & RingCell::kVoid;
    if (core.state(ticket.index()).word != state.word) continue;
    if (!is_void) return true;
    discard_cell(Session::current().heap(), layout(), ticket.index(), state);
  }
}

RingStatus Ring::wait_for_message(Deadline deadline) {
  RingStatus status = wait(Side::kGet, deadline, [&](CellState& state) {
    core_of(layout()).oldest(state);
    return is_ready();
  });
  return status == RingStatus::kClosed ? RingStatus::kDone : status;
}

bool Ring::take_out(RingTicket ticket, Received& message, TaskLedger* tasks) {
  Heap& heap = Session::current().heap();
  // The cell goes back however this ends.
  struct Release {
    RingLayout& layout;
    RingTicket ticket;
    ~Release() {
      core_of(layout).release(ticket);
      notify_room(layout);
    }
  } release{layout(), ticket};
  RingCell& cell = layout().cells()[ticket.index()];
  if (cell.flags & RingCell::kVoid) return false;
  if (tasks) tasks->taken();
  const std::uint32_t transit = ProcessTag::from_word(cell.sender).transit_word();
  const MessagePlace place(heap, cell);
  message.handles_.clear();
  message.block_.release();
  message.size_ = cell.size;
  message.handles_.reserve(cell.handles);
  for (std::size_t i = 0; i < cell.handles; ++i) {
    HoldRef ref = place.handle(i);
    const bool is_place = ref.block == place.block.block && ref.word == place.block.word;  // one hold, taken twice
    if (is_place || !heap.is_hold(ref, transit)) fail_foreign_handle(heap, ref, transit);
    SHOAL_KILL_POINT("ring.get.handle");
    message.handles_.push_back(Hold::from_transit(ref));
  }
  SHOAL_KILL_POINT("ring.get.handles_taken");
  // The block last: as long as it is the message's, a survivor finds in it the handles not taken yet.
  if (place.block.block)
    message.block_ = Hold::from_transit(place.block);
  else
    std::memcpy(message.inline_, place.bytes, message.size_);
  SHOAL_KILL_POINT("ring.get.read");
  return true;
}

Decoder Received::decoder() && {
  const std::byte* bytes = block_ ? block_.data() : inline_;
  return Decoder({bytes, size_}, std::move(handles_));
}

void Ring::close() { close(Session::current().heap(), hold_.block()); }

void Ring::close(Heap& heap, BlockOffset block) noexcept {
  auto& layout = *reinterpret_cast<RingLayout*>(heap.memory().payload(block));
  layout.closed.store(1);
  layout.not_empty.notify_all();
  layout.not_full.notify_all();
}

bool Ring::is_closed() const { return layout().closed.load() != 0; }

std::uint32_t Ring::capacity() const { return layout().capacity; }
std::uint64_t Ring::byte_capacity() const { return layout().byte_capacity; }
std::string Ring::name() const { return {layout().name, ::strnlen(layout().name, sizeof layout().name)}; }

std::uint64_t Ring::bytes() const {
  if (byte_capacity() == 0) return 0;
  auto core = core_of(layout());
  CellState state;
  for (;;) {
    const RingTicket head = core.oldest(state), tail = core.newest();
    if (head.word == tail.word) return 0;
    // At most the last one is claimed and not written yet: the next is admitted when it is.
    RingTicket last = tail.before(capacity());
    CellState seen = core.state(last.index());
    if (seen.ahead_of(last.lap()) == 0 && seen.phase() == CellState::kClaimed) {
      if (last.word == head.word) return 0;
      last = last.before(capacity());
    }
    std::uint64_t start = layout().span(head).start.load(), end = layout().span(last).end.load();
    // Both are of one moment only if neither end of the ring has moved meanwhile.
    if (core.oldest(state).word == head.word && core.newest().word == tail.word) return end - start;
  }
}

std::uint32_t Ring::size() const {
  CellState state;
  RingTicket head = core_of(layout()).oldest(state), tail = core_of(layout()).newest();
  return std::uint32_t(std::clamp<std::int64_t>(head.distance_to(tail, capacity()), 0, capacity()));
}

std::uint32_t Ring::messages_by_cell() const {
  auto core = core_of(layout());
  std::uint32_t messages = 0;
  for (std::uint32_t i = 0; i < capacity(); ++i) {
    CellState state = core.state(i);
    bool is_void = state.phase() == CellState::kFull && layout().cells()[i].flags & RingCell::kVoid;
    messages += state.phase() != CellState::kEmpty && !is_void;
  }
  return messages;
}

std::uint64_t Ring::moves() const {
  CellState state;
  // Helped on first, so that it stands for all that was claimed or taken so far.
  RingTicket head = core_of(layout()).oldest(state), tail = core_of(layout()).newest();
  return head.word * 31 + tail.word;
}

}  // namespace shoal
