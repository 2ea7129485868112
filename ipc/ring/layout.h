// How a ring lies in shared memory. Pictured in docs/ring.md.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/ring/core.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// One message, or the place for one.
struct RingCell {
  static constexpr std::size_t kInlineBytes = 104;
  enum Flags : std::uint16_t {
    kInline = 0,
    kInBlock = 1,  // the contents are one HoldRef, of the block where the message lies
    kVoid = 2,     // its writer died: to be skipped
  };

  std::atomic<std::uint64_t> state;  // CellState
  std::uint64_t size;                // bytes of the message, without its handles
  std::uint32_t sender;              // ProcessTag: its transit holds are the message's
  std::uint16_t handles;             // HoldRefs behind the bytes, aligned to 8
  std::uint16_t flags;
  std::byte contents[kInlineBytes];
};

static_assert(sizeof(RingCell) == 128);
static_assert(offsetof(RingCell, contents) == 24);

/// Of a ring with a byte capacity, one for each cell: from where to where its message lies in the stream of
/// bytes that ever went through the ring. The producer writes it while the cell is claimed. What is in
/// the ring is the difference of two positions: there is no count that a dying process could leave wrong.
struct RingSpan {
  std::atomic<std::uint64_t> start;
  std::atomic<std::uint64_t> end;
};

/// Payload of a block of type kRing; `capacity` cells follow, and if there is a byte capacity as many
/// spans.
struct RingLayout {
  static constexpr std::uint32_t kMagic = 0x676e6972;  // "ring"
  static constexpr std::uint32_t kVersion = 3;
  static constexpr std::size_t kNameBytes = 24;  // with the zero at its end
  static constexpr std::uint32_t kLargestCapacity = RingTicket::Index::kMost + 1;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t schema;  // hash of the type of the messages
  std::uint32_t capacity;
  std::atomic<std::uint32_t> closed;
  std::atomic<std::uint32_t> crashes;  // holders of the ring that died otherwise than by leaving
  std::uint32_t reserved;
  std::uint64_t byte_capacity;  // 0: no limit
  char name[kNameBytes];        // what people call it, for those that look on
  alignas(64) std::atomic<std::uint64_t> tail;
  alignas(64) std::atomic<std::uint64_t> head;
  alignas(64) EventWord not_empty;
  alignas(64) EventWord not_full;

  RingCell* cells() { return reinterpret_cast<RingCell*>(this + 1); }
  RingSpan& span(RingTicket ticket) { return reinterpret_cast<RingSpan*>(cells() + capacity)[ticket.index()]; }
  static std::size_t bytes(std::uint32_t capacity, std::uint64_t byte_capacity) {
    return sizeof(RingLayout) + capacity * (sizeof(RingCell) + (byte_capacity != 0 ? sizeof(RingSpan) : 0));
  }
};

static_assert(sizeof(RingLayout) == 320);

struct CellStates {
  RingCell* cells;
  std::atomic<std::uint64_t>& operator()(std::uint32_t index) const { return cells[index].state; }
};

using ProcessRingCore = RingCore<std::atomic, CellStates>;

inline ProcessRingCore core_of(RingLayout& layout) {
  return ProcessRingCore(layout.tail, layout.head, CellStates{layout.cells()}, layout.capacity);
}

}  // namespace shoal
