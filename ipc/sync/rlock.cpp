#include <shoal/ipc/rlock.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/process/thread_number.h>

#include <stdexcept>

namespace shoal {
namespace {

constexpr std::uint32_t kUntold = RLockLayout::kUntold;

std::uint64_t this_thread() { return std::uint64_t(Session::current().self().word()) << 32 | thread_number(); }

}  // namespace

bool RLock::is_own() const {
  // relaxed: only this thread writes its own name there, and takes it out before it unlocks.
  return part_->owner.load(std::memory_order_relaxed) == this_thread();
}

std::optional<bool> RLock::take(Deadline deadline) {
  std::uint32_t& depth = part_->depth;
  if (is_own()) {
    if ((depth | kUntold) == UINT32_MAX) throw std::logic_error("RLock::lock: locked 2147483647 times by one thread");
    ++depth;
    return (depth & kUntold) != 0;
  }
  const auto inherited = part_->lock.lock_until(deadline);
  if (!inherited) return inherited;
  SHOAL_KILL_POINT("rlock.taken");
  depth = (depth & kUntold) | 1;
  part_->owner.store(this_thread(), std::memory_order_relaxed);  // relaxed: for this thread's eyes
  return *inherited || (depth & kUntold) != 0;
}

std::optional<bool> RLock::lock_until(Deadline deadline) {
  const auto died = take(deadline);
  if (died && *died) part_->depth &= ~kUntold;
  return died;
}

void RLock::lock_untold() {
  if (*take(Deadline::never())) part_->depth |= kUntold;
}

void RLock::unlock() {
  if (!is_own()) throw std::logic_error("RLock::unlock: this thread does not hold the lock");
  if ((part_->depth & ~kUntold) > 1)
    --part_->depth;
  else
    unlock_all();
}

std::uint32_t RLock::unlock_all() {
  const std::uint32_t depth = part_->depth & ~kUntold;
  part_->owner.store(0, std::memory_order_relaxed);  // relaxed: R1 of LockWord comes after it
  SHOAL_KILL_POINT("rlock.unlock");
  part_->lock.unlock();
  return depth;
}

void RLock::lock_again(std::uint32_t depth) {
  lock();
  part_->depth = depth;  // whoever waits asks owner_deaths()
}

constinit const BlockKind kRLockKind{.wait_name = [](std::uint64_t) { return "lock"; }};

}  // namespace shoal
