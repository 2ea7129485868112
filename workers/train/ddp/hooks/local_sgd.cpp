// Local SGD: ranks that step alone, and are averaged from time to time.
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/internal/workers/train/ddp/module_check.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/train/comm_hooks.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
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

namespace {

/// Those that are trained, under their numbers among all.
NamedTensorList trained_ones(const std::vector<at::Tensor>& parameters) {
  NamedTensorList trained;
  const NamedTensorList all = named_by_number(each_once(parameters));
  std::ranges::copy_if(all, std::back_inserter(trained), [](const auto& one) { return one.second.requires_grad(); });
  return trained;
}

/// Ranks that average other parameters than this one mix up values of one size without a word. The names are compared by
/// a number, which costs nothing beside the average; where it differs, all ranks say what does.
void check_same_ones(const ProcessGroupOfHook& process_group, const NamedTensorList& trained) {
  std::uint64_t code = 14695981039346656037U;  // FNV-1a
  for (const auto& [name, tensor] : trained)
    for (const char letter : name) code = (code ^ std::uint8_t(letter)) * 1099511628211U;
  const at::Tensor own = at::empty({1}, at::kLong);
  std::memcpy(own.mutable_data_ptr(), &code, sizeof code);
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < process_group->getSize(); ++rank) all[0].push_back(at::empty_like(own));
  std::vector<at::Tensor> input{own};
  process_group->allgather(all, input)->wait();
  if (std::ranges::any_of(all[0], [&](const at::Tensor& other) { return !other.equal(all[0][0]); }))
    check_same_on_all_ranks(process_group, trained, "list of trained parameters for a PeriodicAverager");
}

}  // namespace

bool PeriodicAverager::average(const std::vector<at::Tensor>& parameters) {
  const std::int64_t step = steps_++;
  if (step < options_.warm_up || (step - options_.warm_up) % options_.period != 0) return false;
  const at::NoGradGuard no_grad;
  const int ranks = process_group_->getSize();
  const NamedTensorList trained = trained_ones(parameters);
  if (trained.empty() && !parameters.empty())
    throw std::invalid_argument(
        "PeriodicAverager::average: none of the tensors requires a gradient, and frozen ones are left as they are: "
        "give "
        "a module's trained parameters");
  check_same_ones(process_group_, trained);
  for (const auto& [name, parameter] : trained) {
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
