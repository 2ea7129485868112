#include <shoal/internal/workers/train/backend/transfer_work.h>

namespace shoal {

bool TransferWork::wait(std::chrono::milliseconds timeout) {
  transfer_.wait(timeout.count() > 0 ? timeout : timeout_);
  return true;
}

}  // namespace shoal
