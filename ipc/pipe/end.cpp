#include <shoal/internal/ipc/pipe/end.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/heap/block_name.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/error.h>

#include <new>

namespace shoal::pipe_end {

Hold create(const Ring* in, const Ring* out, std::uint32_t which) {
  const BlockMemory memory = Session::current().heap().memory();
  Hold end = allocate_shared(sizeof(PipeEndLayout));
  auto* layout = new (end.data()) PipeEndLayout{};
  layout->magic = PipeEndLayout::kMagic;
  layout->version = PipeEndLayout::kVersion;
  layout->owner = block_name(end.block(), memory.header(end.block()));
  // Nobody else knows the rings, so their words from 1 on are free, and it can be noted where the holds
  // will be before there are any: whenever this process dies, none is left without an owner.
  if (in) layout->in = {in->hold().block(), 1 + which};
  if (out) layout->out = {out->hold().block(), 1 + which};
  // release: whoever finds the type finds the layout (close, by a reclaimer).
  memory.header(end.block()).type.store(BlockType::kPipeEnd, std::memory_order_release);
  SHOAL_KILL_POINT("pipe.create.typed");
  for (const HoldRef* ref : {&layout->in, &layout->out}) {
    if (!ref->block) continue;
    memory.hold_word(ref->block, ref->word)->store(layout->owner);
    memory.header(ref->block).state.fetch_add(BlockHeader::kOneChange);  // as try_add_hold: invariant I2
    SHOAL_KILL_POINT("pipe.create.held");
  }
  return end;
}

PipeEndLayout& open(const Hold& end) {
  auto& header = Session::current().heap().memory().header(end.block());
  auto& layout = *reinterpret_cast<PipeEndLayout*>(end.data());
  if (header.type != BlockType::kPipeEnd || layout.magic != PipeEndLayout::kMagic ||
      layout.version != PipeEndLayout::kVersion)
    throw DecodeError("this block of shared memory is no end of a pipe of this version");
  return layout;
}

void close(Heap& heap, BlockOffset end) noexcept {
  auto& layout = *reinterpret_cast<PipeEndLayout*>(heap.memory().payload(end));
  for (const HoldRef& ref : {layout.in, layout.out}) {
    // Held still? Else this is a repetition, and the block may be anybody's.
    if (!ref.block || !heap.is_hold(ref, layout.owner)) continue;
    Ring::close(heap, ref.block);
    SHOAL_KILL_POINT("pipe.close.closed");
    heap.drop(ref);
  }
}

}  // namespace shoal::pipe_end

namespace shoal {

constinit const BlockKind kPipeEndKind{.close = &pipe_end::close};

}  // namespace shoal
