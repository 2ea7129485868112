#include <shoal/internal/workers/train/ddp/mean.h>

#include <ATen/core/ivalue.h>
#include <shoal/internal/workers/train/backend/collective_process_group.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {

c10::intrusive_ptr<c10d::Work> begin_sum(const GroupOfBuckets& process_group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  return process_group->allreduce(tensors);
}

bool averages(const GroupOfBuckets& process_group) {
  return dynamic_cast<const CollectiveProcessGroup*>(process_group.get()) != nullptr;
}

c10::intrusive_ptr<c10d::Work> begin_average(c10d::Backend& backend, std::vector<at::Tensor>& tensor) {
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  return backend.allreduce(tensor, options);
}

HookResult begin_mean(const GroupOfBuckets& process_group, const GradBucket& bucket) {
  const at::Tensor& buffer = bucket.buffer();
  if (buffer.is_cpu() && !is_sparse(bucket) && bucket.divisor() == process_group->getSize() &&
      averages(process_group)) {
    std::vector<at::Tensor> tensors{buffer};
    return hook_result_after(begin_average(*process_group->getBackend(c10::kCPU), tensors),
                             [buffer]() -> at::Tensor { return buffer; });
  }
  buffer.div_(bucket.divisor());
  return hook_result_after(begin_sum(process_group, buffer), [buffer]() -> at::Tensor { return buffer; });
}

}  // namespace shoal
