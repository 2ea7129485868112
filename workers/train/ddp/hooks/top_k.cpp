// The largest elements of each bucket.
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/ddp/hooks/rests.h>
#include <shoal/internal/workers/train/ddp/hooks/stateful.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/workers/train/comm_hooks.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {
namespace {

class TopK final : public StatefulCommHook::Memory {
 public:
  TopK(ProcessGroupOfHook process_group, const TopKOptions& options)
      : process_group_(std::move(process_group)), options_(options) {}

  HookResult reduce(GradBucket& bucket) override {
    const at::NoGradGuard no_grad;
    if (std::exchange(step_, bucket.step()) != bucket.step()) next_.clear();  // of a step that an exception ended
    HookResult result = reduce_one(bucket);
    if (bucket.is_last() || !bucket.all_come())
      for (auto& [rest, next] : std::exchange(next_, {})) rest.copy_(next);
    return result;
  }
  HookResult reduce_one(GradBucket& bucket) {
    if (is_sparse(bucket) || bucket.step() <= options_.start_step || bucket.buffer().numel() == 0)
      return begin_mean(process_group_, bucket);
    const at::Tensor& buffer = bucket.buffer();
    const at::Tensor rest = options_.error_feedback ? rests_.of(bucket) : at::Tensor();
    if (rest.defined()) buffer.add_(rest);
    const auto count = std::max<std::int64_t>(1, std::llround(options_.fraction * double(buffer.numel())));
    const at::Tensor indices = std::get<1>(buffer.abs().topk(count, 0, /*largest=*/true, /*sorted=*/false));
    const at::Tensor values = buffer.index_select(0, indices);
    if (rest.defined()) next_.emplace_back(rest, buffer.clone().index_fill_(0, indices, 0));
    // Both are given away before either is waited for: the next bucket's come after them on every rank.
    auto all_indices = begin_gather(indices);
    auto all_values = begin_gather(values);
    return hook_result_after(all_values.work, [buffer, all_indices, all_values, divisor = bucket.divisor()] {
      const at::NoGradGuard no_grad;
      buffer.zero_();
      for (std::size_t rank = 0; rank < all_indices.outputs.size(); ++rank)
        buffer.index_add_(0, all_indices.outputs[rank], all_values.outputs[rank]);
      return buffer.div_(divisor);
    });
  }

  CommHookState save(const std::vector<at::Tensor>& parameters) const override {
    return {.left_out = rests_.save(parameters), .factors = std::vector<at::Tensor>(parameters.size())};
  }
  void load(const CommHookState& state, const std::vector<at::Tensor>& parameters) override {
    next_.clear();
    if (options_.error_feedback) rests_.load(state.left_out, parameters);
  }

 private:
  struct Gathered {
    std::vector<at::Tensor> outputs;
    c10::intrusive_ptr<c10d::Work> work;
  };

  Gathered begin_gather(const at::Tensor& own) {
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int rank = 0; rank < process_group_->getSize(); ++rank)
      outputs[0].push_back(at::empty(own.sizes(), own.options()));
    std::vector<at::Tensor> inputs{own};
    auto work = process_group_->allgather(outputs, inputs);
    return {std::move(outputs[0]), std::move(work)};
  }

  ProcessGroupOfHook process_group_;
  TopKOptions options_;
  Rests rests_;  // what was not sent
  std::int64_t step_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>>
      next_;  // rests of buckets of this step, and what they become at its end
};

}  // namespace

StatefulCommHook top_k_hook(const ProcessGroupOfHook& process_group, const TopKOptions& options) {
  if (!(options.fraction > 0 && options.fraction <= 1))
    throw std::invalid_argument(fmt::format("top_k_hook: a fraction of {}; above 0, at most 1", options.fraction));
  if (options.start_step < 1)
    throw std::invalid_argument(
        fmt::format("top_k_hook: start_step {}: buckets change after step 1", options.start_step));
  return StatefulCommHook(std::make_shared<TopK>(process_group, options));
}

}  // namespace shoal
