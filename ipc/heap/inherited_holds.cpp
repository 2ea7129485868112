#include <shoal/internal/ipc/heap/inherited_holds.h>

#include <atomic>
#include <utility>

namespace shoal {
namespace {

// The fork count since when handles count, here and in the parent at the fork. A process has one heap. Written around
// forks and while holds are adopted, when there is one thread.
constinit std::atomic<std::uint32_t> since{0}, parents_since{0};

}  // namespace

void InheritedHolds::note(const HoldRef& own, std::size_t words) {
  std::lock_guard lock(mutex_);
  since = parents_since.load();
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

bool InheritedHolds::counts(std::uint32_t fork_count) noexcept { return fork_count >= since.load(); }

void InheritedHolds::after_fork_in_child(InheritedHolds& parents, std::uint32_t now) noexcept {
  parents_ = std::move(parents.holds_);
  parents_since = since.exchange(now);
  // Nobody asks for it again. glibc refuses: the mutex is that of the parent's thread by its number. But TSan would take it
  // for held as long as this process lives.
  parents.mutex_.unlock();
}

}  // namespace shoal
