// The contents of a ring's cells, read without trust.
#pragma once

#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/ring/layout.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace shoal {

/// Where a cell's message lies, as far as the cell can be believed.
struct MessagePlace {
  HoldRef block;  // the message's block, if it is not in the cell
  const std::byte* bytes;
  const std::byte* handles;

  /// Throws DecodeError.
  MessagePlace(const Heap& heap, const RingCell& cell) {
    const std::uint64_t size = cell.size;
    std::uint64_t room = RingCell::kInlineBytes;
    bytes = cell.contents;
    if (cell.flags & RingCell::kInBlock) {
      std::memcpy(&block, cell.contents, sizeof block);
      if (!heap.is_hold(block, ProcessTag::from_word(cell.sender).transit_word()))
        throw DecodeError("a message in a block that is not its own");
      bytes = heap.memory().payload(block.block);
      room = heap.memory().header(block.block).size;
    }
    if (size > room || Encoder::handles_at(size) + cell.handles * sizeof(HoldRef) > room)
      throw DecodeError("a message longer than its place");
    handles = bytes + Encoder::handles_at(size);
  }
  HoldRef handle(std::size_t index) const {
    HoldRef ref;
    std::memcpy(&ref, handles + index * sizeof ref, sizeof ref);
    return ref;
  }
};

/// Copies the holds of a cell's message, so that they can be checked before they are believed. The cell may change
/// meanwhile, or be none any more: nothing outside the session's memory is read. What was found is only worth something
/// if a second look finds the cell's state unchanged.
struct CellContents {
  ProcessTag sender;
  HoldRef spilled;
  std::vector<HoldRef> handles;

  /// Throws DecodeError.
  CellContents(const Heap& heap, const RingCell& shared) {
    RingCell cell;  // read once: what is checked is what is used
    std::memcpy(static_cast<void*>(&cell), static_cast<const void*>(&shared), sizeof cell);
    sender = ProcessTag::from_word(cell.sender);
    if (cell.flags & RingCell::kVoid) return;
    MessagePlace place(heap, cell);
    spilled = place.block;
    if (spilled.block && !heap.is_inside(place.handles, cell.handles * sizeof(HoldRef)))
      throw DecodeError("a message that reaches out of the session's memory");
    handles.resize(cell.handles);
    for (std::size_t i = 0; i < handles.size(); ++i) handles[i] = place.handle(i);
  }
};

/// Takes over what is left of a message whose reader died, or that nobody will read, and lets it go. Holds that the
/// dead reader had made its own already are reclaimed with that reader. In ring/recovery.cpp.
void discard_cell(Heap& heap, RingLayout& layout, std::uint32_t index, CellState seen);

inline void notify_room(RingLayout& layout) {
  // With a byte capacity the thread that is woken may want more room than there is, and another one less.
  if (layout.byte_capacity != 0)
    layout.not_full.notify_all();
  else
    layout.not_full.notify_one();
}

}  // namespace shoal
