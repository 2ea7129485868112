#include <shoal/internal/runtime/ticket/child_blocks.h>

#include <shoal/internal/ipc/process/session.h>
#include <shoal/ipc/heap.h>

namespace shoal {

void ChildBlocks::take_back() const noexcept {
  Session& session = Session::current();
  for (const HoldRef& lent : {channel, crash_record}) Hold::adopt(lent, session.self()).release();
}

Hold adopt_lent(const HoldRef& lent, ProcessTag parent) {
  Hold hold = Hold::adopt(lent, parent);
  if (!hold) throw ParentDied("a process was started by one that has died since");
  return hold;
}

}  // namespace shoal
