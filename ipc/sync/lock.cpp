#include <shoal/ipc/lock.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>

#include <stdexcept>

namespace shoal {

void Lock::unlock() {
  if (!is_own()) throw std::logic_error("Lock::unlock: this process does not hold the lock");
  SHOAL_KILL_POINT("lock.unlock");
  part_->lock.unlock();
}

constinit const BlockKind kLockKind{.wait_name = [](std::uint64_t) { return "lock"; }};

}  // namespace shoal
