#include <shoal/internal/ipc/observe/ring_look.h>

#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/ring/layout.h>
#include <string.h>

#include <algorithm>
#include <cstring>

namespace shoal {
namespace {

/// Whose bytes are added up one by one: more are not worth the while.
constexpr std::uint32_t kMostCounted = 64;
constexpr std::uint32_t kMostHandles = 256;

class RingLook {
 public:
  RingLook(const SessionFile& file, const SeenBlock& block) : file_(file), at_(block.payload) {
    sound_ = block.size >= sizeof layout_ && file.read(at_, layout_) && layout_.magic == RingLayout::kMagic &&
             layout_.version == RingLayout::kVersion && layout_.capacity > 0 &&
             layout_.capacity < RingLayout::kLargestCapacity &&
             RingLayout::bytes(layout_.capacity, layout_.byte_capacity) <= block.size;
  }
  bool is_sound() const { return sound_; }
  const RingLayout& layout() const { return layout_; }

  /// As RingCore's oldest() and newest(): the hints lag, and the cells say where the ring is.
  RingTicket oldest() const { return settle(layout_.head, CellState::kTaken, CellState::kFull); }
  RingTicket newest() const { return settle(layout_.tail, CellState::kClaimed, CellState::kEmpty); }

  /// Messages that were claimed (taken) before this ticket, ever.
  std::uint64_t messages_before(RingTicket ticket) const { return ticket.lap() * layout_.capacity + ticket.index(); }

  std::optional<std::uint64_t> bytes(RingTicket from, std::uint32_t count) const {
    if (count == 0) return 0;
    if (layout_.byte_capacity != 0) return bytes_by_spans(from, count);
    if (count > kMostCounted) return std::nullopt;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i, from = from.next(layout_.capacity)) {
      RingCell cell{};
      if (!read_cell(from, cell)) return std::nullopt;
      sum += charge(cell);
    }
    return sum;
  }

 private:
  std::uint64_t cell_at(std::uint32_t index) const {
    return at_ + sizeof(RingLayout) + std::uint64_t(index) * sizeof(RingCell);
  }
  bool read_cell(RingTicket ticket, RingCell& cell) const { return file_.read(cell_at(ticket.index()), cell); }

  RingTicket settle(const std::atomic<std::uint64_t>& hint, CellState::Phase done, CellState::Phase from) const {
    // The hint may lag by any number of cells, but whoever came by has moved it: a few steps find the place, or one
    // close to it.
    constexpr int kSteps = 32;
    RingTicket ticket{copied(hint)};
    for (int step = 0; step < kSteps && ticket.index() < layout_.capacity; ++step) {
      CellState state;
      if (!file_.read(cell_at(ticket.index()), state.word)) break;
      const std::int64_t ahead = state.ahead_of(ticket.lap());
      if (ahead < 0 || (ahead == 0 && state.phase() < done)) break;
      const std::uint64_t lap = state.phase() > from ? state.lap() : state.lap() - 1;
      ticket = RingTicket::make(lap, ticket.index()).next(layout_.capacity);
    }
    return ticket;
  }

  std::optional<std::uint64_t> bytes_by_spans(RingTicket from, std::uint32_t count) const {
    auto span_at = [&](RingTicket ticket) {
      return cell_at(layout_.capacity) + std::uint64_t(ticket.index()) * sizeof(RingSpan);
    };
    const RingTicket last{(from.index() + count - 1) % layout_.capacity};
    RingSpan first_span{}, last_span{};
    if (!file_.read(span_at(from), first_span) || !file_.read(span_at(last), last_span)) return std::nullopt;
    const std::uint64_t bytes = copied(last_span.end) - copied(first_span.start);
    // It went on meanwhile, so that the two are not of one moment.
    if (bytes > std::uint64_t(INT64_MAX)) return std::nullopt;
    return bytes;
  }

  /// What a byte capacity would count for this message: its bytes and those of the blocks that travel with it.
  std::uint64_t charge(const RingCell& cell) const {
    std::uint64_t sum = cell.size;
    const std::uint64_t handles_at = Encoder::handles_at(cell.size);
    std::uint64_t place = 0;
    if (cell.flags & RingCell::kInBlock) {
      HoldRef ref;
      std::memcpy(&ref, cell.contents, sizeof ref);
      const auto block = block_of(file_, ref.block.value);
      if (!block || cell.size > block->size) return 0;
      place = block->payload;
    } else if (cell.size > RingCell::kInlineBytes) {
      return 0;
    }
    const std::uint32_t handles = std::min<std::uint32_t>(cell.handles, kMostHandles);
    for (std::uint32_t i = 0; i < handles; ++i) {
      HoldRef ref;
      const std::uint64_t at = handles_at + i * sizeof ref;
      if (place != 0) {
        if (!file_.read(place + at, ref)) break;
      } else {
        if (at + sizeof ref > RingCell::kInlineBytes) break;
        std::memcpy(&ref, cell.contents + at, sizeof ref);
      }
      if (const auto block = block_of(file_, ref.block.value)) sum += block->size;
    }
    return sum;
  }

  const SessionFile& file_;
  const std::uint64_t at_;
  RingLayout layout_{};
  bool sound_ = false;
};

}  // namespace

std::optional<SeenQueue> look_at_ring(const SessionFile& file, const SeenBlock& block) {
  const RingLook ring(file, block);
  if (!ring.is_sound()) return std::nullopt;
  const RingLayout& layout = ring.layout();
  const RingTicket head = ring.oldest(), tail = ring.newest();
  SeenQueue queue{};
  queue.block = block.block.value;
  queue.name.assign(layout.name, ::strnlen(layout.name, sizeof layout.name));
  queue.kind = queue.name == "shoal: channel" ? SeenQueue::Kind::kChannel : SeenQueue::Kind::kQueue;
  queue.capacity = layout.capacity;
  queue.byte_capacity = layout.byte_capacity;
  queue.put = ring.messages_before(tail);
  queue.got = ring.messages_before(head);
  // The two were read one after the other: what was got meanwhile may pass what had been put.
  queue.got = std::min(queue.got, queue.put);
  queue.depth = std::uint32_t(std::min<std::uint64_t>(queue.put - queue.got, layout.capacity));
  queue.bytes = ring.bytes(head, queue.depth);
  queue.closed = copied(layout.closed) != 0;
  queue.crashes = copied(layout.crashes);
  return queue;
}

}  // namespace shoal
