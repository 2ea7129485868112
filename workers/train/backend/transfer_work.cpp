#include <shoal/internal/workers/train/backend/transfer_work.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

namespace shoal {

bool TransferWork::wait(std::chrono::milliseconds timeout) {
  transfer_.wait(timeout.count() > 0 ? timeout : timeout_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> TransferWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  try {
    wait(kNoTimeout);
    future->markCompleted(c10::IValue(tensors_));
  } catch (...) {
    future->setError(std::current_exception());
  }
  return future;
}

}  // namespace shoal
