// Local SGD: ranks that step alone, and are averaged from time to time.
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/train/comm_hooks.h>

#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {

CommHook local_sgd_hook(const ProcessGroupOfHook& process_group, const LocalSgdOptions& options) {
  if (options.start_step < 0)
    throw std::invalid_argument(
        fmt::format("local_sgd_hook: start_step {}: give the number of steps before, 0 or more", options.start_step));
  return [process_group, options](GradBucket& bucket) {
    if (bucket.step() <= options.start_step) return begin_mean(process_group, bucket);
    if (!options.part) return hook_result(bucket.buffer());
    const at::Tensor& buffer = bucket.buffer();
    buffer.div_(options.part->getSize());
    return hook_result_after(begin_sum(options.part, buffer), [buffer]() -> at::Tensor { return buffer; });
  };
}

PeriodicAverager::PeriodicAverager(ProcessGroupOfHook process_group, const PeriodicAveragerOptions& options)
    : process_group_(std::move(process_group)), options_(options) {
  if (options_.period < 1)
    throw std::invalid_argument(fmt::format("PeriodicAverager: a period of {} steps; at least 1", options_.period));
  if (options_.warm_up < 0)
    throw std::invalid_argument(fmt::format("PeriodicAverager: a warm_up of {} steps; 0 or more", options_.warm_up));
}

void PeriodicAverager::set_steps(std::int64_t steps) {
  if (steps < 0) throw std::invalid_argument(fmt::format("PeriodicAverager: set_steps({}); 0 or more", steps));
  steps_ = steps;
}

bool PeriodicAverager::average(const std::vector<at::Tensor>& parameters) {
  const std::int64_t step = steps_++;
  if (step < options_.warm_up || (step - options_.warm_up) % options_.period != 0) return false;
  const at::NoGradGuard no_grad;
  const int ranks = process_group_->getSize();
  for (const at::Tensor& parameter : each_once(parameters)) {
    // The sum of copies: a parameter is never a part of what it was, also where another rank dies.
    at::Tensor mean;
    {
      const SharedMemoryScope born_shared;
      mean = parameter.detach().div(ranks);
    }
    begin_sum(process_group_, mean)->wait();
    parameter.detach().copy_(mean);
  }
  return true;
}

}  // namespace shoal
