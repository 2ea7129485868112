// One end of a pipe, in shared memory.
#pragma once

#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/heap.h>

#include <cstdint>

namespace shoal {

/// Payload of a block of type kPipeEnd. Whoever has this end of the pipe holds this block, and this block holds the
/// rings. When nobody has the end any more, because all let go or died, the block is closed, which closes the rings for
/// the other end.
struct PipeEndLayout {
  static constexpr std::uint32_t kMagic = 0x65706970;  // "pipe"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t owner;  // the word in whose name this block holds its rings: no process's tag
  std::uint32_t reserved;
  HoldRef in;   // the ring this end receives from, no block if it cannot
  HoldRef out;  // the ring it sends to
};

static_assert(sizeof(PipeEndLayout) == 48);

namespace pipe_end {

/// Makes an end for two rings (either may be null) that nobody else knows of yet. `which` is 0 or 1.
Hold create(const Ring* in, const Ring* out, std::uint32_t which);
/// Throws DecodeError if the block is no pipe's end.
PipeEndLayout& open(const Hold& end);
/// Does what closing the block has to do. Repeatable.
void close(Heap& heap, BlockOffset end) noexcept;

}  // namespace pipe_end

}  // namespace shoal
