// Who else holds a block that this process holds. Not for users.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/ipc/heap.h>

#include <cstdint>
#include <unordered_map>

namespace shoal {

/// Whether `hold` is the only one on its block, messages included. Then nobody can get another one unless the caller
/// gives it to them. Exact, as the last look of BlockHeader's invariants is.
bool is_only_hold(const Hold& hold);

/// One look at the holders of many blocks: each process is asked for once. One thread.
class HolderCheck {
 public:
  /// Looks at a block that may be free by now, or become so: what it sees may then be anything, and does no harm.
  void look_at(BlockOffset block);
  /// Gives back what the dead ones among those seen had.
  void reclaim_dead();

 private:
  std::unordered_map<std::uint32_t, bool> alive_;  // by the word of the ProcessTag
};

}  // namespace shoal
