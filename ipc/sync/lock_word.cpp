#include <shoal/internal/ipc/sync/lock_word.h>

#include <shoal/internal/ipc/sync/lock_wait.h>

namespace shoal {

template std::optional<bool> BasicLockWord<RealWorld>::lock_slowly(Deadline);
template void BasicLockWord<RealWorld>::unlock_slowly();

}  // namespace shoal
