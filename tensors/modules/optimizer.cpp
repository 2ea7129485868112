#include <shoal/tensors/optimizer.h>

#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <shoal/tensors/share.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <typeinfo>

namespace shoal {
namespace {

using namespace torch::optim;

/// What an optimizer keeps for one parameter.
struct Kept {
  std::int64_t* step = nullptr;
  struct Part {
    const char* name;
    at::Tensor* tensor;
  };
  std::vector<Part> tensors;
  double initial = 0;  // of all their elements

  bool nothing() const { return !step && tensors.empty(); }
};

Kept kept(SGDParamState& state, const SGDOptions& options) {
  if (options.momentum() == 0) return {};
  return {nullptr, {{"momentum_buffer", &state.momentum_buffer()}}};
}

template <class State, class Options>
Kept kept_by_adam(State& state, const Options& options) {
  Kept all{&state.step(), {{"exp_avg", &state.exp_avg()}, {"exp_avg_sq", &state.exp_avg_sq()}}};
  if (options.amsgrad()) all.tensors.push_back({"max_exp_avg_sq", &state.max_exp_avg_sq()});
  return all;
}
Kept kept(AdamParamState& state, const AdamOptions& options) { return kept_by_adam(state, options); }
Kept kept(AdamWParamState& state, const AdamWOptions& options) { return kept_by_adam(state, options); }

Kept kept(RMSpropParamState& state, const RMSpropOptions& options) {
  Kept all{&state.step(), {{"square_avg", &state.square_avg()}}};
  if (options.momentum() != 0) all.tensors.push_back({"momentum_buffer", &state.momentum_buffer()});
  if (options.centered()) all.tensors.push_back({"grad_avg", &state.grad_avg()});
  return all;
}

Kept kept(AdagradParamState& state, const AdagradOptions& options) {
  return {&state.step(), {{"sum", &state.sum()}}, options.initial_accumulator_value()};
}

using Visit = std::function<void(int index, const at::Tensor& parameter, Kept& kept)>;

template <class Options, class State>
void for_each_of(Optimizer& optimizer, const Visit& visit) {
  int index = 0;
  for (OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      auto& states = optimizer.state();
      auto found = states.find(parameter.unsafeGetTensorImpl());
      std::unique_ptr<State> fresh;
      if (found == states.end()) fresh = std::make_unique<State>();
      Kept all = kept(fresh ? *fresh : static_cast<State&>(*found->second), options);
      if (!all.nothing()) visit(index, parameter, all);
      if (fresh && !all.nothing()) states[parameter.unsafeGetTensorImpl()] = std::move(fresh);
      ++index;
    }
  }
}

/// Calls visit for each parameter for which the optimizer keeps anything.
void for_each(Optimizer& optimizer, const Visit& visit) {
  if (dynamic_cast<SGD*>(&optimizer)) return for_each_of<SGDOptions, SGDParamState>(optimizer, visit);
  if (dynamic_cast<Adam*>(&optimizer)) return for_each_of<AdamOptions, AdamParamState>(optimizer, visit);
  if (dynamic_cast<AdamW*>(&optimizer)) return for_each_of<AdamWOptions, AdamWParamState>(optimizer, visit);
  if (dynamic_cast<RMSprop*>(&optimizer)) return for_each_of<RMSpropOptions, RMSpropParamState>(optimizer, visit);
  if (dynamic_cast<Adagrad*>(&optimizer)) return for_each_of<AdagradOptions, AdagradParamState>(optimizer, visit);
  if (dynamic_cast<LBFGS*>(&optimizer))
    throw std::invalid_argument(
        "the state of LBFGS cannot be shared: it is lists of directions that each step makes anew. Use SGD, Adam, "
        "AdamW, "
        "RMSprop or Adagrad");
  throw std::invalid_argument(
      fmt::format("the state of {} cannot be shared: only that of SGD, Adam, AdamW, RMSprop and Adagrad",
                  c10::demangle(typeid(optimizer).name())));
}

void make_missing(const at::Tensor& parameter, Kept& kept) {
  for (auto& [name, tensor] : kept.tensors)
    if (!tensor->defined()) *tensor = at::full_like(parameter.detach(), kept.initial);
}

}  // namespace

void share_memory_(Optimizer& optimizer) {
  for_each(optimizer, [](int, const at::Tensor& parameter, Kept& kept) {
    make_missing(parameter, kept);
    for (auto& [name, tensor] : kept.tensors) share_memory_(*tensor);
  });
}

OptimizerState optimizer_state(Optimizer& optimizer) {
  OptimizerState state;
  for_each(optimizer, [&](int, const at::Tensor& parameter, Kept& kept) {
    make_missing(parameter, kept);
    if (kept.step) state.push_back(at::scalar_tensor(*kept.step, at::kLong));
    for (auto& [name, tensor] : kept.tensors) state.push_back(*tensor);
  });
  return state;
}

void use_optimizer_state(Optimizer& optimizer, const OptimizerState& state) {
  std::size_t count = 0;
  // Looked at as a whole before anything is changed.
  for_each(optimizer, [&](int index, const at::Tensor& parameter, Kept& kept) {
    auto check = [&](const char* name, at::IntArrayRef sizes, at::ScalarType dtype) {
      if (count < state.size()) {
        const at::Tensor& tensor = state[count];
        if (!tensor.defined() || tensor.sizes() != sizes || tensor.scalar_type() != dtype)
          throw std::invalid_argument(
              fmt::format("optimizer state: {} of parameter {} has another shape or type than there", name, index));
      }
      ++count;
    };
    if (kept.step) check("step", {}, at::kLong);
    for (auto& [name, tensor] : kept.tensors) check(name, parameter.sizes(), parameter.scalar_type());
  });
  if (count != state.size())
    throw std::invalid_argument(
        fmt::format("optimizer state: {} tensors, and this optimizer keeps {}", state.size(), count));
  count = 0;
  for_each(optimizer, [&](int, const at::Tensor&, Kept& kept) {
    if (kept.step) *kept.step = state[count++].item<std::int64_t>();
    for (auto& [name, tensor] : kept.tensors) *tensor = state[count++];
  });
}

}  // namespace shoal
