#include <shoal/workers/train/comm_hook.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

namespace shoal {

const at::Tensor& GradBucket::buffer() const { return bucket_.getBuffer(); }
void GradBucket::set_buffer(const at::Tensor& buffer) { bucket_.getBufferRef() = buffer; }
std::vector<at::Tensor> GradBucket::parameters() const { return bucket_.getParameters(); }

std::vector<at::Tensor> GradBucket::gradients() const {
  // A sparse gradient is a bucket of its own, of which libtorch keeps no offsets.
  if (buffer().layout() != c10::kStrided) return {buffer()};
  return bucket_.getGradients();
}

HookResult hook_result(const at::Tensor& reduced) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  future->markCompleted(c10::IValue(reduced));
  return future;
}

HookResult hook_result_after(const c10::intrusive_ptr<c10d::Work>& work, std::function<at::Tensor()> finish) {
  return work->getFuture()->then(
      [finish = std::move(finish)](c10::ivalue::Future& parent) {
        if (parent.hasError()) std::rethrow_exception(parent.exception_ptr());
        return c10::IValue(finish());
      },
      c10::TensorType::get());
}

}  // namespace shoal
