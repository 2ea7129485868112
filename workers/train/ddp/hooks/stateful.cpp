#include <shoal/internal/workers/train/ddp/hooks/stateful.h>

#include <ATen/core/ivalue.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

/// Whether elements lie in the order of these strides: a dimension of one element may have any.
bool lies_by(const at::Tensor& parameter, const std::vector<std::int64_t>& strides) {
  if (std::int64_t(strides.size()) != parameter.dim()) return false;
  for (std::int64_t i = 0; i < parameter.dim(); ++i)
    if (parameter.size(i) > 1 && parameter.stride(i) != strides[std::size_t(i)]) return false;
  return true;
}

}  // namespace

StatefulCommHook::StatefulCommHook(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

HookResult StatefulCommHook::operator()(GradBucket& bucket) const { return memory_->reduce(bucket); }

CommHookState StatefulCommHook::state_dict(const std::vector<at::Tensor>& parameters) const {
  return memory_->save(parameters);
}

void StatefulCommHook::load_state_dict(const CommHookState& state, const std::vector<at::Tensor>& parameters) {
  check_state_dict(state, parameters);
  memory_->load(state, parameters);
}

bool is_finite(const at::Tensor& given) {
  // One pass over the elements. The sum of finite halves is no half.
  const at::Tensor tensor = given.is_sparse() ? given._values() : given;
  const at::Tensor sum = tensor.element_size() == 2 ? tensor.sum(at::kFloat) : tensor.sum();
  return std::isfinite(sum.item<double>());
}

void refuse_complex(const GradBucket& bucket, const char* hook) {
  for (const at::Tensor& parameter : bucket.parameters())
    if (parameter.is_complex())
      throw std::invalid_argument(
          fmt::format("{}: a parameter is {} [{}]: complex ones are reduced by all_reduce_hook, or without a hook; or "
                      "train real and imaginary parts as parameters of their own",
                      hook, c10::toString(parameter.scalar_type()), fmt::join(parameter.sizes(), ", ")));
}

std::vector<std::vector<std::int64_t>> strides_of(const std::vector<at::Tensor>& parameters) {
  std::vector<std::vector<std::int64_t>> strides;
  strides.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) strides.push_back(parameter.strides().vec());
  return strides;
}

void check_state_dict(const CommHookState& state, const std::vector<at::Tensor>& parameters) {
  if (state.left_out.size() != parameters.size() || state.factors.size() != parameters.size())
    throw std::invalid_argument(fmt::format("a communication hook's state of {} parameters, for a module of {}",
                                            state.left_out.size(), parameters.size()));
  const auto check = [&](const at::Tensor& kept, std::size_t i, const char* what, bool fits) {
    if (kept.defined() && (!fits || !c10::isFloatingType(kept.scalar_type())))
      throw std::invalid_argument(fmt::format("a communication hook's state: {} of parameter {}, [{}], is {} [{}]",
                                              what, i, fmt::join(parameters[i].sizes(), ", "),
                                              c10::toString(kept.scalar_type()), fmt::join(kept.sizes(), ", ")));
  };
  if (!state.strides.empty() && state.strides.size() != parameters.size())
    throw std::invalid_argument(
        fmt::format("a communication hook's state with strides of {} parameters, for a module of {}",
                    state.strides.size(), parameters.size()));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor &parameter = parameters[i], &left_out = state.left_out[i], &factor = state.factors[i];
    check(left_out, i, "what was left out", left_out.dim() == 1 && left_out.numel() == parameter.numel());
    check(factor, i, "the factor",
          factor.dim() == 2 && parameter.dim() >= 2 && factor.size(0) * parameter.size(0) == parameter.numel());
    if (!state.strides.empty() && (left_out.defined() || factor.defined()) && !lies_by(parameter, state.strides[i]))
      throw std::invalid_argument(fmt::format(
          "a communication hook's state: parameter {}, [{}], lay in memory by strides [{}], and lies by [{}]: "
          "make it as it was, or begin without the state",
          i, fmt::join(parameter.sizes(), ", "), fmt::join(state.strides[i], ", "),
          fmt::join(parameter.strides(), ", ")));
  }
}

}  // namespace shoal
