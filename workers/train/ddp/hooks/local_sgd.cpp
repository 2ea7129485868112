// Local SGD: ranks that step alone, and are averaged from time to time.
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/workers/train/comm_hooks.h>

#include <memory>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {

CommHook local_sgd_hook(const ProcessGroupOfHook& process_group, const LocalSgdOptions& options) {
  return [process_group, options, step = std::make_shared<std::int64_t>(0)](GradBucket& bucket) {
    if (bucket.index() == 0) ++*step;
    if (*step <= options.start_step) return begin_mean(process_group, bucket);
    if (!options.part) return hook_result(bucket.buffer());
    const at::Tensor& buffer = bucket.buffer();
    buffer.div_(options.part->getSize());
    return hook_result_after(begin_sum(options.part, buffer), [buffer]() -> at::Tensor { return buffer; });
  };
}

PeriodicAverager::PeriodicAverager(ProcessGroupOfHook process_group, const PeriodicAveragerOptions& options)
    : process_group_(std::move(process_group)), options_(options) {
  if (options_.period < 1)
    throw std::invalid_argument(fmt::format("PeriodicAverager: a period of {}", options_.period));
}

bool PeriodicAverager::average(const std::vector<at::Tensor>& parameters) {
  const std::int64_t step = step_++;
  if (step < options_.warm_up || (step - options_.warm_up) % options_.period != 0) return false;
  const at::NoGradGuard no_grad;
  const int ranks = process_group_->getSize();
  std::vector<c10::intrusive_ptr<c10d::Work>> sums;
  sums.reserve(parameters.size());
  for (const at::Tensor& parameter : each_once(parameters))
    sums.push_back(begin_sum(process_group_, parameter.detach().div_(ranks)));
  for (const auto& sum : sums) sum->wait();
  return true;
}

}  // namespace shoal
