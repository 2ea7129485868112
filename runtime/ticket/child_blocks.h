// What a parent lends to a process that it starts.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>

namespace shoal {

/// A started process was about to adopt what its parent had lent, and the parent is dead.
class ParentDied : public Error {
  using Error::Error;
};

/// The child's holds, in transit until it adopts them: on its channel and on its crash record. Travels in tickets and
/// requests.
struct ChildBlocks {
  HoldRef channel, crash_record;

  /// In the parent, when the child has ended or could not be started: gives up the holds that the child did not
  /// adopt. (Those that it did adopt are given up with all else that the child had.)
  void take_back() const noexcept;

  template <class Self, class Visit>
  static void for_each_number(Self& self, Visit&& visit) {
    for (auto* lent : {&self.channel, &self.crash_record}) visit(lent->block.value, lent->word);
  }
};

/// In the child: the hold that its parent lent. Throws ParentDied if it was given back in the parent's name: by now
/// the block may be another one.
Hold adopt_lent(const HoldRef& lent, ProcessTag parent);

}  // namespace shoal
