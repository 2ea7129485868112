#include <shoal/internal/ipc/heap/inherited_holds.h>

#include <utility>

namespace shoal {

void InheritedHolds::note(const HoldRef& own, std::size_t words) {
  std::lock_guard lock(mutex_);
  std::size_t handles = words;
  // One of the parent's words stood for all those handles that it had inherited itself.
  if (auto found = parents_.find(own.block.value); found != parents_.end()) handles += found->second.handles - 1;
  holds_.insert_or_assign(own.block.value, Counted{own, handles});
}

HoldRef InheritedHolds::let_go(BlockOffset block) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = holds_.find(block.value);
  if (found == holds_.end() || --found->second.handles > 0) return {};
  const HoldRef own = found->second.own;
  holds_.erase(found);
  return own;
}

void InheritedHolds::after_fork_in_child(InheritedHolds& parents) noexcept { parents_ = std::move(parents.holds_); }

}  // namespace shoal
