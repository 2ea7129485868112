#include <shoal/internal/workers/train/backend/finished_work.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

namespace shoal {

FinishedWork::FinishedWork(c10d::OpType type, std::vector<at::Tensor> outputs)
    : Work(-1, type), outputs_(std::move(outputs)) {}

c10::intrusive_ptr<c10::ivalue::Future> FinishedWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(outputs_));
  return future;
}

}  // namespace shoal
