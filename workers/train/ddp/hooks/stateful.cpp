#include <shoal/internal/workers/train/ddp/hooks/stateful.h>

#include <ATen/core/ivalue.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <utility>

namespace shoal {

StatefulCommHook::StatefulCommHook(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

HookResult StatefulCommHook::operator()(GradBucket& bucket) const { return memory_->reduce(bucket); }

CommHookState StatefulCommHook::state_dict(const std::vector<at::Tensor>& parameters) const {
  return memory_->save(parameters);
}

void StatefulCommHook::load_state_dict(const CommHookState& state, const std::vector<at::Tensor>& parameters) {
  check_state_dict(state, parameters);
  memory_->load(state, parameters);
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
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor &parameter = parameters[i], &left_out = state.left_out[i], &factor = state.factors[i];
    check(left_out, i, "what was left out", left_out.dim() == 1 && left_out.numel() == parameter.numel());
    check(factor, i, "the factor",
          factor.dim() == 2 && parameter.dim() >= 2 && factor.size(0) * parameter.size(0) == parameter.numel());
  }
}

}  // namespace shoal
