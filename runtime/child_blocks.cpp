#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/child_blocks.h>

namespace shoal {

void ChildBlocks::take_back() const noexcept {
  Session& session = Session::current();
  for (const HoldRef& lent : {channel, crash_record})
    // Only the child could have changed the word, and it is dead: nobody changes it between these lines.
    if (session.heap().is_hold(lent, session.self().transit_word())) Hold::from_transit(lent).release();
}

}  // namespace shoal
