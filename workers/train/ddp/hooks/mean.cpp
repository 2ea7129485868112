#include <shoal/internal/workers/train/ddp/hooks/mean.h>

#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {

c10::intrusive_ptr<c10d::Work> begin_sum(const ProcessGroupOfHook& process_group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  return process_group->allreduce(tensors);
}

HookResult begin_mean(const ProcessGroupOfHook& process_group, const GradBucket& bucket) {
  const at::Tensor& buffer = bucket.buffer();
  buffer.div_(bucket.divisor());
  return hook_result_after(begin_sum(process_group, buffer), [buffer]() -> at::Tensor { return buffer; });
}

CommHook all_reduce_hook(const ProcessGroupOfHook& process_group) {
  return [process_group](GradBucket& bucket) { return begin_mean(process_group, bucket); };
}

}  // namespace shoal
