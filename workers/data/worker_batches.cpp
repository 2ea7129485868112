#include <shoal/workers/data/worker_batches.h>

#include <stdexcept>

#include <fmt/format.h>

namespace shoal::loading {

void raise_timeout(std::chrono::nanoseconds timeout, std::int64_t batch) {
  throw TimeoutError(fmt::format("DataLoader: no worker had batch {} ready within the timeout of {} s", batch,
                                 std::chrono::duration<double>(timeout).count()));
}

void raise_stopped() {
  throw std::logic_error("DataLoader: its workers were ended by an earlier exception of this pass; begin a new one");
}

}  // namespace shoal::loading
