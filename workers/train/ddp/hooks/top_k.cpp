// The largest elements of each bucket.
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/ddp/hooks/rests.h>
#include <shoal/internal/workers/train/ddp/hooks/stateful.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/workers/train/comm_hooks.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {
namespace {

/// What becomes of the rests when a pass is whole: all of its buckets have come, and their collectives have succeeded, as
/// they then have on all ranks; and all that was sent is finite. Otherwise they stay what they were. Threads: any, since
/// collectives end in their own.
class NextRests {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++under_way_;
  }
  void add(const at::Tensor& rest, at::Tensor next) {
    const std::lock_guard lock(mutex_);
    next_.emplace_back(rest, std::move(next));
  }
  void end(bool is_finite) {
    const std::lock_guard lock(mutex_);
    --under_way_;
    all_finite_ = all_finite_ && is_finite;
    write_if_whole();
  }
  /// No bucket comes any more.
  void all_have_come() {
    const std::lock_guard lock(mutex_);
    all_come_ = true;
    write_if_whole();
  }

 private:
  void write_if_whole() {
    if (under_way_ > 0 || !all_come_ || !all_finite_) return;
    const at::NoGradGuard no_grad;
    for (auto& [rest, next] : std::exchange(next_, {})) rest.copy_(next);
  }

  std::mutex mutex_;
  std::size_t under_way_ = 0;
  bool all_come_ = false, all_finite_ = true;
  std::vector<std::pair<at::Tensor, at::Tensor>> next_;
};

struct Gathered {
  std::vector<at::Tensor> outputs;
  c10::intrusive_ptr<c10d::Work> work;
};

/// `finish` makes the result when both are over.
HookResult after_both(const Gathered& first, const Gathered& second, std::function<at::Tensor()> finish) {
  return first.work->getFuture()->thenAsync(
      [other = second.work->getFuture(), finish = std::move(finish)](c10::ivalue::Future& one) {
        if (one.hasError()) std::rethrow_exception(one.exception_ptr());
        return other->then(
            [finish](c10::ivalue::Future& both) {
              if (both.hasError()) std::rethrow_exception(both.exception_ptr());
              return c10::IValue(finish());
            },
            c10::TensorType::get());
      },
      c10::TensorType::get());
}

class TopK final : public StatefulCommHook::Memory {
 public:
  TopK(ProcessGroupOfHook process_group, const TopKOptions& options)
      : process_group_(std::move(process_group)), options_(options) {}

  HookResult reduce(GradBucket& bucket) override {
    const at::NoGradGuard no_grad;
    refuse_complex(bucket, "top_k_hook");
    // Of a pass that an exception ended nothing is left. Where buckets may be skipped each is for itself.
    if (std::exchange(step_, bucket.step()) != bucket.step() || !bucket.all_come())
      next_ = std::make_shared<NextRests>();
    const std::shared_ptr<NextRests> next = next_;
    next->begin();
    HookResult result = begin(bucket, next);
    if (bucket.is_last() || !bucket.all_come()) next->all_have_come();
    return result;
  }

  CommHookState save(const std::vector<at::Tensor>& parameters) const override {
    return {.left_out = rests_.save(parameters),
            .factors = std::vector<at::Tensor>(parameters.size()),
            .strides = strides_of(parameters)};
  }
  void load(const CommHookState& state, const std::vector<at::Tensor>& parameters) override {
    next_ = std::make_shared<NextRests>();
    if (options_.error_feedback) rests_.load(state.left_out, parameters);
  }

 private:
  HookResult begin(GradBucket& bucket, const std::shared_ptr<NextRests>& next) {
    if (is_sparse(bucket) || bucket.step() <= options_.start_step || bucket.buffer().numel() == 0)
      return HookResult(
          begin_mean(process_group_, bucket)
              ->then(
                  [next, may_have_rests = bucket.step() > options_.start_step](c10::ivalue::Future& mean) {
                    if (mean.hasError()) std::rethrow_exception(mean.exception_ptr());
                    next->end(!may_have_rests || is_finite(mean.value().toTensor()));
                    return mean.value();
                  },
                  c10::TensorType::get()));
    const at::Tensor& buffer = bucket.buffer();
    const at::Tensor rest = options_.error_feedback ? rests_.of(bucket) : at::Tensor();
    if (rest.defined()) buffer.add_(rest);
    const auto count = std::max<std::int64_t>(1, std::llround(options_.fraction * double(buffer.numel())));
    const at::Tensor indices = std::get<1>(buffer.abs().topk(count, 0, /*largest=*/true, /*sorted=*/false));
    const at::Tensor values = buffer.index_select(0, indices);
    if (rest.defined()) next->add(rest, buffer.clone().index_fill_(0, indices, 0));
    // Both are given away before either is waited for: the next bucket's come after them on every rank.
    const Gathered all_indices = begin_gather(indices), all_values = begin_gather(values);
    return after_both(all_indices, all_values, [buffer, all_indices, all_values, next, divisor = bucket.divisor()] {
      const at::NoGradGuard still_none;
      buffer.zero_();
      for (std::size_t rank = 0; rank < all_indices.outputs.size(); ++rank)
        buffer.index_add_(0, all_indices.outputs[rank], all_values.outputs[rank]);
      buffer.div_(divisor);
      // What is not finite is the largest of its rank: it was sent, and all ranks see it.
      next->end(std::ranges::all_of(all_values.outputs, is_finite));
      return buffer;
    });
  }

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
  std::shared_ptr<NextRests> next_ = std::make_shared<NextRests>();  // of the pass
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
