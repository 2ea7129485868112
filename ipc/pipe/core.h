// What the handles of one connection share in one process. Not for users.
#pragma once

#include <shoal/internal/ipc/pipe/any_connection.h>
#include <shoal/ipc/fd.h>

#include <atomic>
#include <mutex>
#include <optional>

namespace shoal {

/// The end is given up under the mutex. The rings stay as long as a thread of this process may be using them: they are
/// closed by then, so nobody waits there.
struct AnyConnection::Core {
  std::mutex mutex;
  Hold end;
  std::atomic<bool> closed{false};
  std::optional<Ring> in, out;

  // Of the ReadinessWatch, under its mutex.
  std::atomic<bool> watched{false};
  Fd ready;
  std::uint32_t fork_count = 0;  // of the process that `ready` belongs to
  bool signaled = false;         // `ready` is readable
};

}  // namespace shoal
