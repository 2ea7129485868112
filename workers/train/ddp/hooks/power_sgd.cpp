// PowerSGD: gradients as products of thin matrices.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/ddp/hooks/rests.h>
#include <shoal/internal/workers/train/ddp/hooks/stateful.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/ipc/codec.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/train/comm_hooks.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>
#include <utility>

namespace shoal {
namespace {

/// Columns of length 1 that stand upright on each other, by Gram and Schmidt, in place.
void orthogonalize(const at::Tensor& matrix) {
  if (matrix.element_size() == 2) {
    // In half types a length may be too large for a number, and is known to three digits.
    const at::Tensor in_float = matrix.to(at::kFloat);
    orthogonalize(in_float);
    matrix.copy_(in_float);
    return;
  }
  // A column of zeros stays one: a gradient that is zero has no direction.
  constexpr double kShortest = 1e-30;
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {
    const at::Tensor column = matrix.narrow(1, i, 1);
    column.div_(column.norm().clamp_min_(kShortest));
    if (i > 0) {
      // Once more: of a column that lay in the others' plane only rounding is left, which points anywhere.
      const at::Tensor before = matrix.narrow(1, 0, i);
      column.sub_(at::mm(before, at::mm(before.t(), column)));
      column.div_(column.norm().clamp_min_(kShortest));
    }
    if (i + 1 == matrix.size(1)) break;
    const at::Tensor rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
    rest.sub_(column.mul((column * rest).sum(0)));
  }
}

/// One gradient M, n x m, as P Q^T.
struct Factors {
  at::Tensor matrix;       // a view of the bucket
  at::Tensor p, q;         // views of the bucket's buffers of factors
  std::size_t number = 0;  // the parameter's, in the bucket
};

/// A bucket under way. Its collectives are two: what goes as it is together with all P, and all Q.
struct Underway {
  at::Tensor buffer;
  int divisor = 1;
  std::size_t index = 0;
  at::Tensor given = {};               // what was to be sent
  at::Tensor rest = {};                // what is left out of it
  std::vector<at::Tensor> plain = {};  // views of the bucket
  std::vector<Factors> factors = {};
  at::Tensor first = {}, second = {};  // the buffers of the two collectives, of which `p` and `q` are views
  std::int64_t plain_elements = 0;
  c10::intrusive_ptr<c10d::Work> work = {};
  HookResult result = {};
};

class PowerSgd final : public StatefulCommHook::Memory {
 public:
  PowerSgd(ProcessGroupOfHook process_group, const PowerSgdOptions& options)
      : process_group_(std::move(process_group)), options_(options) {}

  /// Collectives have to come in the same order on all ranks, so they are begun here and nowhere else: a bucket's second
  /// one when the next bucket has come, the last bucket's at once.
  HookResult reduce(GradBucket& bucket) override {
    const at::NoGradGuard no_grad;
    if (!bucket.all_come())
      throw std::invalid_argument(
          "power_sgd_hook with skip_all_reduce_unused_params: a bucket's second half waits for the next bucket, "
          "which may not come; leave that option out");
    refuse_complex(bucket, "power_sgd_hook");
    if (std::exchange(step_, bucket.step()) != bucket.step()) forget_pass();  // which an exception ended
    if (step_ <= options_.start_step) return begin_mean(process_group_, bucket);
    HookResult result;
    if (is_sparse(bucket)) {
      result = sparse_.emplace_back(begin_mean(process_group_, bucket));
    } else {
      Underway begun = begin(bucket);
      result = begun.result;
      if (second_phase_) begin_second(*std::exchange(second_phase_, std::nullopt));
      second_phase_.emplace(std::move(begun));
    }
    if (bucket.is_last()) {
      if (second_phase_) begin_second(*std::exchange(second_phase_, std::nullopt));
      end(std::exchange(last_phase_, {}), std::exchange(sparse_, {}));
    }
    return result;
  }

  CommHookState save(const std::vector<at::Tensor>& parameters) const override {
    CommHookState state{.left_out = rests_.save(parameters),
                        .factors = std::vector<at::Tensor>(parameters.size()),
                        .strides = strides_of(parameters)};
    if (!options_.warm_start) return state;
    std::unordered_map<const c10::TensorImpl*, at::Tensor> factors;
    for (const auto& [impl, loaded] : loaded_) factors[impl] = loaded.factor;
    for (const Buffers& buffers : buffers_)
      for (std::size_t i = 0; buffers.is_kept && i < buffers.parameters.size(); ++i)
        factors[buffers.parameters[i].unsafeGetTensorImpl()] = buffers.kept[i];
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (const auto found = factors.find(parameters[i].unsafeGetTensorImpl());
          found != factors.end() && found->second.defined())
        state.factors[i] = found->second.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    return state;
  }
  void load(const CommHookState& state, const std::vector<at::Tensor>& parameters) override {
    forget_pass();
    if (options_.error_feedback) rests_.load(state.left_out, parameters);
    buffers_.clear();
    loaded_.clear();
    for (std::size_t i = 0; options_.warm_start && i < parameters.size(); ++i)
      if (state.factors[i].defined())
        loaded_[parameters[i].unsafeGetTensorImpl()] = {parameters[i], state.factors[i].clone()};
  }

 private:
  /// Of a bucket, kept from step to step.
  struct Buffers {
    std::vector<at::Tensor> parameters;
    at::Tensor first, second;
    std::vector<at::Tensor> kept;  // with warm_start, of each parameter: q of the last whole step
    bool is_kept = false;          // there was one
  };
  /// A parameter's factor that was loaded.
  struct Loaded {
    at::Tensor parameter;  // keeps the key from becoming another tensor's
    at::Tensor factor;
  };

  void forget_pass() {
    second_phase_.reset();
    last_phase_.clear();
    sparse_.clear();
  }

  Underway begin(GradBucket& bucket) {
    Underway part{.buffer = bucket.buffer(), .divisor = bucket.divisor(), .index = bucket.index()};
    part.result = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    if (options_.error_feedback) {
      part.rest = rests_.of(bucket);
      part.buffer.add_(part.rest);
      part.given = part.buffer.clone();
    }
    const std::vector<at::Tensor> gradients = bucket.gradients();
    for (std::size_t number = 0; number < gradients.size(); ++number) {
      const at::Tensor& gradient = gradients[number];
      if (gradient.dim() >= 2 && compresses(gradient)) {
        const at::Tensor matrix = gradient.view({gradient.size(0), -1});
        part.factors.push_back({matrix, {}, {}, number});
      } else {
        part.plain.push_back(gradient);
        part.plain_elements += gradient.numel();
      }
    }
    const Buffers& buffers = buffers_of(bucket, part);
    part.first = buffers.first;
    part.second = buffers.second;
    std::int64_t p_at = part.plain_elements, q_at = 0;
    for (Factors& one : part.factors) {
      const std::int64_t n = one.matrix.size(0), m = one.matrix.size(1), rank = rank_of(one.matrix);
      one.p = part.first.narrow(0, p_at, n * rank).view({n, rank});
      one.q = part.second.narrow(0, q_at, m * rank).view({m, rank});
      p_at += n * rank;
      q_at += m * rank;
      begin_factor(one, part.index, buffers);
      at::mm_out(one.p, one.matrix, one.q);
    }
    std::int64_t at = 0;
    for (const at::Tensor& plain : part.plain) {
      part.first.narrow(0, at, plain.numel()).copy_(plain.reshape({-1})).div_(part.divisor);
      at += plain.numel();
    }
    part.work = begin_sum(process_group_, part.first);
    return part;
  }

  void begin_second(Underway part) {
    part.work->wait();
    // P is made of columns of length 1 whatever it was divided by.
    for (Factors& one : part.factors) {
      orthogonalize(one.p);
      at::mm_out(one.q, one.matrix.t(), one.p);
    }
    if (!part.factors.empty()) {
      part.second.div_(part.divisor);
      part.work = begin_sum(process_group_, part.second);
    }
    last_phase_.push_back(std::move(part));
  }

  /// All of a pass, or nothing: what is remembered changes if no rank had an exception, and the means are finite. These
  /// are the same on all ranks.
  void end(std::vector<Underway> parts, const std::vector<HookResult>& sparse) {
    std::exception_ptr failure;
    for (const Underway& part : parts) {
      try {
        part.work->wait();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    bool all_finite = std::ranges::all_of(sparse, [](const HookResult& mean) {
      mean->waitAndThrow();
      return is_finite(mean->value().toTensor());
    });
    for (Underway& part : parts) {
      std::int64_t at = 0;
      for (const at::Tensor& plain : part.plain) {
        plain.copy_(part.first.narrow(0, at, plain.numel()).view(plain.sizes()));
        at += plain.numel();
      }
      for (Factors& one : part.factors) at::mm_out(one.matrix, one.p, one.q.t());
      all_finite = all_finite && is_finite(part.buffer);
    }
    for (const Underway& part : parts) {
      if (all_finite) remember(part);
      part.result->markCompleted(c10::IValue(part.buffer));
    }
  }

  void remember(const Underway& part) {
    if (options_.error_feedback) remember_rest(part);
    if (!options_.warm_start) return;
    Buffers& buffers = buffers_[part.index];
    for (const Factors& one : part.factors) buffers.kept[one.number].copy_(one.q);
    buffers.is_kept = true;
  }

  /// What is left out of this rank's own gradient: plain ones leave nothing out.
  void remember_rest(const Underway& part) {
    const at::Tensor& rest = part.rest;
    rest.zero_();
    for (const Factors& one : part.factors) {
      const std::int64_t offset = one.matrix.storage_offset() - part.buffer.storage_offset();
      const std::int64_t elements = one.matrix.numel();
      rest.narrow(0, offset, elements)
          .copy_(part.given.narrow(0, offset, elements))
          .sub_(one.matrix.reshape({-1}), double(part.divisor) / process_group_->getSize());
    }
  }

  /// The bucket's, made anew where it has other parameters. They are there whole or not at all: memory may be refused.
  const Buffers& buffers_of(const GradBucket& bucket, const Underway& part) {
    std::vector<at::Tensor> parameters = bucket.parameters();
    if (part.index >= buffers_.size()) buffers_.resize(part.index + 1);
    if (are_same(buffers_[part.index].parameters, parameters)) return buffers_[part.index];
    forget_buckets_of(buffers_, parameters);
    Buffers made{.parameters = std::move(parameters), .first = {}, .second = {}, .kept = {}};
    made.kept.resize(made.parameters.size());
    std::int64_t first_elements = part.plain_elements, second_elements = 0;
    for (const Factors& one : part.factors) {
      const std::int64_t m = one.matrix.size(1), rank = rank_of(one.matrix);
      first_elements += one.matrix.size(0) * rank;
      second_elements += m * rank;
      if (options_.warm_start) made.kept[one.number] = at::empty({m, rank}, part.buffer.options());
    }
    const SharedMemoryScope born_shared;
    made.first = at::empty({first_elements}, part.buffer.options());
    made.second = at::empty({second_elements}, part.buffer.options());
    return buffers_[part.index] = std::move(made);
  }

  /// q begins from the last step's, from what was loaded, or from drawn numbers; and so does a column of zeros, which would
  /// stay one for good (of a gradient that was zero, or of a lower rank), and one that is not finite.
  void begin_factor(const Factors& one, std::size_t bucket, const Buffers& buffers) const {
    at::Tensor from;
    if (options_.warm_start)
      from = buffers.is_kept ? buffers.kept[one.number] : loaded_of(buffers.parameters[one.number]);
    if (from.defined() && from.sizes() == one.q.sizes()) {
      one.q.copy_(from);
      const at::Tensor longest = one.q.abs().amax(0, true);
      const at::Tensor no_column = longest.eq(0).logical_or_(longest.isfinite().logical_not_());
      if (no_column.any().item<bool>()) one.q.copy_(at::where(no_column, drawn(one, bucket), one.q));
    } else {
      one.q.copy_(drawn(one, bucket));
    }
    orthogonalize(one.q);
  }

  bool compresses(const at::Tensor& gradient) const {
    const std::int64_t n = gradient.size(0), m = gradient.numel() / std::max<std::int64_t>(n, 1);
    if (gradient.numel() == 0) return false;
    const std::int64_t rank = std::min({n, m, options_.rank});
    return double(n + m) * double(rank) * options_.smallest_compression < double(n) * double(m);
  }
  std::int64_t rank_of(const at::Tensor& matrix) const {
    return std::min({matrix.size(0), matrix.size(1), options_.rank});
  }
  /// What a bucket that is made anew begins from, in any step: the same on all ranks, as what is drawn is.
  at::Tensor loaded_of(const at::Tensor& parameter) const {
    const auto found = loaded_.find(parameter.unsafeGetTensorImpl());
    return found == loaded_.end() ? at::Tensor() : found->second.factor;
  }
  /// The same numbers on all ranks, others in each step and for each parameter. Of no step before: ranks of which some had
  /// an exception agree again.
  at::Tensor drawn(const Factors& one, std::size_t bucket) const {
    const at::Generator generator = at::detail::createCPUGenerator(schema_hash(
        "power_sgd_hook", options_.seed, std::uint64_t(step_), std::uint64_t(bucket), std::uint64_t(one.number)));
    return at::randn(one.q.sizes(), generator, at::kFloat).to(one.q.options());
  }

  ProcessGroupOfHook process_group_;
  PowerSgdOptions options_;
  std::int64_t step_ = 0;
  Rests rests_;                   // what the approximations have left out
  std::vector<Buffers> buffers_;  // by bucket
  std::unordered_map<const c10::TensorImpl*, Loaded> loaded_;
  std::optional<Underway> second_phase_;  // the bucket whose second collective has not begun
  std::vector<Underway> last_phase_;      // those whose second one has
  std::vector<HookResult> sparse_;        // the pass's means of sparse gradients
};

}  // namespace

StatefulCommHook power_sgd_hook(const ProcessGroupOfHook& process_group, const PowerSgdOptions& options) {
  if (options.rank < 1)
    throw std::invalid_argument(fmt::format("power_sgd_hook: a rank of {}; at least 1", options.rank));
  if (options.start_step < 1)
    throw std::invalid_argument(
        fmt::format("power_sgd_hook: start_step {}: buckets change after step 1", options.start_step));
  if (!(options.smallest_compression >= 0))
    throw std::invalid_argument(
        fmt::format("power_sgd_hook: a smallest_compression of {}; a factor, 0 or more", options.smallest_compression));
  return StatefulCommHook(std::make_shared<PowerSgd>(process_group, options));
}

}  // namespace shoal
