#include <fmt/format.h>
#include <shoal/ipc/kill_point.h>
#include <shoal/ipc/ring.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/session/layout.h>
#include <shoal/ipc/sync/spin.h>

#include <chrono>
#include <new>
#include <vector>

namespace shoal {
namespace {

std::uint32_t self_slot() { return Session::current().self().slot(); }

/// What a cell says of its message, copied out so that it can be checked before it is believed.
struct CellContents {
  std::uint32_t size;
  std::uint16_t handles;
  std::uint16_t flags;
  ProcessTag sender;
  HoldRef spilled;  // kInBlock
  std::vector<HoldRef> handle_refs;
  const std::byte* bytes = nullptr;  // in the cell, or in the block

  CellContents(const Heap& heap, const RingCell& cell)
      : size(cell.size), handles(cell.handles), flags(cell.flags), sender(ProcessTag::from_word(cell.sender)) {
    if (flags & RingCell::kVoid) return;
    const std::byte* start = cell.contents;
    std::size_t room = RingCell::kInlineBytes;
    if (flags & RingCell::kInBlock) {
      std::memcpy(&spilled, cell.contents, sizeof spilled);
      if (!heap.is_hold(spilled, sender.transit_word())) throw DecodeError("a message in a block that is not its own");
      start = heap.memory().payload(spilled.block);
      room = heap.memory().header(spilled.block).size;
    }
    if (handles * sizeof(HoldRef) + size > room) throw DecodeError("a message longer than its place");
    handle_refs.resize(handles);
    if (handles != 0) std::memcpy(handle_refs.data(), start, handles * sizeof(HoldRef));
    bytes = start + handles * sizeof(HoldRef);
  }
};

/// Takes over what is left of a message whose reader died, or that nobody will read, and lets it go.
/// Those of its holds that the dead reader had made its own already are reclaimed with that reader.
void discard(Heap& heap, RingLayout& layout, std::uint32_t index, CellState seen) {
  std::uint64_t expected = seen.word;
  auto mine = CellState::make(CellState::kTaken, self_slot(), seen.lap());
  if (!layout.cells()[index].state.compare_exchange_strong(expected, mine.word)) return;
  std::vector<Hold> held;
  try {
    CellContents contents(heap, layout.cells()[index]);
    held.reserve(contents.handle_refs.size() + 1);
    for (const HoldRef& ref : contents.handle_refs)
      if (heap.is_hold(ref, contents.sender.transit_word())) held.push_back(Hold::from_transit(ref));
    if (contents.spilled.block) held.push_back(Hold::from_transit(contents.spilled));
  } catch (const DecodeError&) {
    // The dead reader had taken the block over: that is reclaimed with it.
  }
  core_of(layout).release(RingTicket{seen.lap() << RingTicket::kIndexBits | index});
  layout.not_full.notify_one();
}

}  // namespace

Ring::Ring(Hold hold) : hold_(std::move(hold)), layout_(reinterpret_cast<RingLayout*>(hold_.data())) {}

Ring Ring::create(std::uint32_t capacity, std::uint64_t schema) {
  if (capacity == 0 || capacity >= RingLayout::kLargestCapacity)
    throw std::invalid_argument(
        fmt::format("capacity is {}: give 1 to {} messages", capacity, RingLayout::kLargestCapacity - 1));
  Hold hold = allocate_shared(sizeof(RingLayout) + capacity * sizeof(RingCell), BlockType::kBytes);
  auto* layout = new (hold.data()) RingLayout{};
  layout->magic = RingLayout::kMagic;
  layout->version = RingLayout::kVersion;
  layout->schema = schema;
  layout->capacity = capacity;
  for (std::uint32_t i = 0; i < capacity; ++i) new (&layout->cells()[i].state) std::atomic<std::uint64_t>(0);
  // Only now is it a ring to those that walk the heap.
  Session::current().heap().memory().header(hold.block()).type.store(BlockType::kRing, std::memory_order_release);
  return Ring(std::move(hold));
}

Ring Ring::open(Hold hold, std::uint64_t schema) {
  auto& header = Session::current().heap().memory().header(hold.block());
  if (header.type != BlockType::kRing) throw DecodeError("this block of shared memory is no queue");
  Ring ring(std::move(hold));
  const RingLayout& layout = ring.layout();
  if (layout.magic != RingLayout::kMagic || layout.version != RingLayout::kVersion)
    throw DecodeError("this queue was made by another version of shoal");
  if (layout.schema != schema)
    throw DecodeError(
        fmt::format("this queue carries another type: schema {:016x}, here {:016x}", layout.schema, schema));
  return ring;
}

RingStatus Ring::claim(Side side, Deadline deadline, RingTicket& ticket) {
  auto core = core_of(layout());
  EventWord& event = side == Side::kPut ? layout().not_full : layout().not_empty;
  const std::uint32_t slot = self_slot();
  CellState state;
  auto attempt = [&] {
    auto outcome = side == Side::kPut ? core.claim(slot, ticket, state) : core.take(slot, ticket, state);
    return outcome == ProcessRingCore::Outcome::kClaimed;
  };
  Spinner spinner;
  bool slept = false;
  auto next_check = std::chrono::steady_clock::time_point::min();
  for (;;) {
    // Looked at before the attempt: closed and then nothing there means drained for good.
    bool closed = is_closed();
    if (closed && side == Side::kPut) return RingStatus::kClosed;
    if (attempt()) break;
    if (closed && state.phase() == CellState::kEmpty) return RingStatus::kClosed;
    if (deadline.passed()) return RingStatus::kTimedOut;
    if (!slept && spinner.turn()) continue;
    std::uint32_t prepared = event.prepare();
    if (attempt()) break;
    if (is_closed() != closed) continue;
    auto now = std::chrono::steady_clock::now();
    if (slept && now >= next_check) {
      next_check = now + kLivenessSlice;
      Session& session = Session::current();
      bool in_work = state.phase() == CellState::kClaimed || state.phase() == CellState::kTaken;
      if (in_work && state.slot() != slot) {
        ProcessTag owner(state.slot(), session.record(state.slot()).generation.load());
        if (!session.is_alive(owner)) {
          session.reclaim(owner);
          continue;
        }
      }
      if (peers_died()) return RingStatus::kPeersDied;
    }
    event.sleep(prepared, deadline.left(kLivenessSlice));
    slept = true;
  }
  spinner.ended(!slept);
  if (slept) {
    event.leave();
    // One wake-up may stand for several messages (or places): pass it on.
    bool more = side == Side::kPut ? size() < capacity() : size() > 0;
    if (more) event.notify_one();
  }
  return RingStatus::kDone;
}

bool Ring::peers_died() {
  return !Session::current().reclaim_dead_holders(hold_.block()) && layout().crashes.load() > 0;
}

void Ring::write(RingCell& cell, Encoder& message, const HoldRef& spilled) {
  auto handles = message.handles();
  auto bytes = message.bytes();
  cell.size = std::uint32_t(bytes.size());
  cell.handles = std::uint16_t(handles.size());
  cell.sender = Session::current().self().word();
  cell.flags = spilled.block ? RingCell::kInBlock : RingCell::kInline;
  if (spilled.block) {
    std::memcpy(cell.contents, &spilled, sizeof spilled);
    return;
  }
  std::memcpy(cell.contents, handles.data(), handles.size_bytes());
  std::memcpy(cell.contents + handles.size_bytes(), bytes.data(), bytes.size());
}

RingStatus Ring::put(Encoder& message, Deadline deadline) {
  auto handles = message.handles();
  auto bytes = message.bytes();
  if (handles.size() > UINT16_MAX || bytes.size() > UINT32_MAX)
    throw std::invalid_argument(fmt::format("a message of {} bytes and {} handles: at most {} and {} fit", bytes.size(),
                                            handles.size(), UINT32_MAX, UINT16_MAX));
  Hold block;
  std::size_t total = handles.size_bytes() + bytes.size();
  if (total > RingCell::kInlineBytes) {
    block = allocate_shared(total);
    std::memcpy(block.data(), handles.data(), handles.size_bytes());
    std::memcpy(block.data() + handles.size_bytes(), bytes.data(), bytes.size());
  }
  RingTicket ticket;
  if (RingStatus status = claim(Side::kPut, deadline, ticket); status != RingStatus::kDone) return status;
  SHOAL_KILL_POINT("ring.put.claimed");
  HoldRef spilled;
  if (block) spilled = std::move(block).into_transit();
  write(layout().cells()[ticket.index()], message, spilled);
  SHOAL_KILL_POINT("ring.put.written");
  core_of(layout()).publish(ticket);
  message.sent();
  SHOAL_KILL_POINT("ring.put.published");
  layout().not_empty.notify_one();
  return RingStatus::kDone;
}

RingStatus Ring::get(Received& message, Deadline deadline) {
  for (;;) {
    RingTicket ticket;
    if (RingStatus status = claim(Side::kGet, deadline, ticket); status != RingStatus::kDone) return status;
    SHOAL_KILL_POINT("ring.get.taken");
    if (take_out(ticket, message)) return RingStatus::kDone;
  }
}

bool Ring::take_out(RingTicket ticket, Received& message) {
  Heap& heap = Session::current().heap();
  // The cell goes back however this ends.
  struct Release {
    RingLayout& layout;
    RingTicket ticket;
    ~Release() {
      core_of(layout).release(ticket);
      layout.not_full.notify_one();
    }
  } release{layout(), ticket};
  RingCell& cell = layout().cells()[ticket.index()];
  if (cell.flags & RingCell::kVoid) return false;
  const ProcessTag sender = ProcessTag::from_word(cell.sender);
  const std::byte* start = cell.contents;
  std::size_t room = RingCell::kInlineBytes;
  message.handles_.clear();
  message.block_.release();
  message.size_ = cell.size;
  HoldRef spilled;
  if (cell.flags & RingCell::kInBlock) {
    std::memcpy(&spilled, cell.contents, sizeof spilled);
    if (!heap.is_hold(spilled, sender.transit_word())) throw DecodeError("a message in a block that is not its own");
    start = heap.memory().payload(spilled.block);
    room = heap.memory().header(spilled.block).size;
  }
  const std::size_t handle_bytes = cell.handles * sizeof(HoldRef);
  if (handle_bytes + cell.size > room) throw DecodeError("a message longer than its place");
  message.handles_.reserve(cell.handles);
  for (std::size_t i = 0; i < cell.handles; ++i) {
    HoldRef ref;
    std::memcpy(&ref, start + i * sizeof ref, sizeof ref);
    if (!heap.is_hold(ref, sender.transit_word())) throw DecodeError("a handle that is not the message's own");
    SHOAL_KILL_POINT("ring.get.handle");
    message.handles_.push_back(Hold::from_transit(ref));
  }
  SHOAL_KILL_POINT("ring.get.handles_taken");
  if (spilled.block) {
    // The block last: as long as it is the message's, a survivor finds in it the handles not taken yet.
    message.block_ = Hold::from_transit(spilled);
    message.offset_ = handle_bytes;
  } else {
    std::memcpy(message.inline_, start + handle_bytes, cell.size);
  }
  SHOAL_KILL_POINT("ring.get.read");
  return true;
}

Decoder Received::decoder() && {
  const std::byte* bytes = block_ ? block_.data() + offset_ : inline_;
  return Decoder({bytes, size_}, std::move(handles_));
}

void Ring::close() {
  layout().closed.store(1);
  layout().not_empty.notify_all();
  layout().not_full.notify_all();
}

bool Ring::is_closed() const { return layout().closed.load() != 0; }

std::uint32_t Ring::capacity() const { return layout().capacity; }

std::uint32_t Ring::size() const {
  RingTicket head{layout().head.load()}, tail{layout().tail.load()};
  std::int64_t laps = std::int64_t((tail.lap() - head.lap()) << 24) >> 24;
  std::int64_t size = laps * std::int64_t(capacity()) + std::int64_t(tail.index()) - std::int64_t(head.index());
  return std::uint32_t(std::clamp<std::int64_t>(size, 0, capacity()));
}

void Ring::drain(Heap& heap, BlockOffset block) noexcept {
  auto& layout = *reinterpret_cast<RingLayout*>(heap.memory().payload(block));
  for (std::uint32_t i = 0; i < layout.capacity; ++i) {
    CellState state = core_of(layout).state(i);
    if (state.phase() == CellState::kFull || state.phase() == CellState::kTaken) discard(heap, layout, i, state);
  }
}

void Ring::recover(Heap& heap, BlockOffset block, ProcessTag dead) {
  auto& layout = *reinterpret_cast<RingLayout*>(heap.memory().payload(block));
  auto core = core_of(layout);
  for (std::uint32_t i = 0; i < layout.capacity; ++i) {
    CellState state = core.state(i);
    if (state.slot() != dead.slot()) continue;
    if (state.phase() == CellState::kTaken) {
      discard(heap, layout, i, state);
    } else if (state.phase() == CellState::kClaimed && core.steal(i, state, self_slot())) {
      // The writer got somewhere or nowhere; getters skip the cell, which keeps the order of the others.
      layout.cells()[i].flags = RingCell::kVoid;
      layout.cells()[i].handles = 0;
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
        found = std::move(contents.handle_refs);
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
