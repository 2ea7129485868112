#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/child_blocks.h>

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
