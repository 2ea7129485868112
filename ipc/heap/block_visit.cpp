#include <shoal/internal/ipc/heap/block_visit.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/spin.h>
#include <shoal/internal/ipc/heap/hold_protocol.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <time.h>

#include <utility>

namespace shoal {
namespace {

/// The process that visits the block by this state. Its slot is nobody else's before its visit has been ended for it.
ProcessTag visitor_of(SessionCore& session, std::uint64_t state) {
  const std::uint32_t slot = BlockHeader::slot(state) - 1;
  return {slot, session.record(slot).generation.load() & ProcessTag::kGenerationMask};
}

void nap() {
  const timespec length{.tv_sec = 0, .tv_nsec = 50'000};
  ::nanosleep(&length, nullptr);
}

}  // namespace

BlockVisit::BlockVisit(Heap& heap, BlockOffset block, int naps) noexcept : heap_(heap), block_(block) {
  SessionCore& session = SessionCore::current();
  const ProcessTag self = session.self();
  const BlockMemory memory = heap.memory();
  const HoldProtocol protocol(memory);
  using Visited = HoldProtocol<BlockMemory>::Visited;
  std::uint64_t seen = 0;
  Spinner spinner;
  for (int napped = 0;;) {
    const Visited visited = protocol.try_visit(block, self, seen);
    if (visited == Visited::kYes) break;
    if (visited == Visited::kNotLive) {
      block_ = {};
      return;
    }
    if (napped == 0 && spinner.turn()) continue;
    if (!session.is_alive(visitor_of(session, seen))) {
      if (protocol.take_over_visit(block, self, seen)) break;
      continue;
    }
    if (naps >= 0 && napped == naps) {
      kept_out_ = true;
      block_ = {};
      return;
    }
    nap();
    ++napped;
  }
  SHOAL_KILL_POINT("block.visit.begun");
}

bool BlockVisit::end() noexcept {
  const BlockOffset block = std::exchange(block_, {});
  if (!block) return false;
  const ProcessTag self = Session::current().self();
  const BlockMemory memory = heap_.memory();
  HoldProtocol(memory).end_visit(block, self);
  SHOAL_KILL_POINT("block.visit.ended");
  if (!memory.try_close(block, self)) return false;
  heap_.finish_close(block);
  return true;
}

}  // namespace shoal
