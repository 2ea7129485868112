// What a parent lends to a process that it starts.
#pragma once

#include <shoal/ipc/heap/block.h>

namespace shoal {

/// The child's holds, in transit until it adopts them: on its channel and on its crash record. Travels in tickets and
/// requests.
struct ChildBlocks {
  HoldRef channel, crash_record;

  /// In the parent, when the child has ended or could not be started: gives up the holds that the child did not
  /// adopt. (Those that it did adopt are given up with all else that the child had.)
  void take_back() const noexcept;
};

}  // namespace shoal
