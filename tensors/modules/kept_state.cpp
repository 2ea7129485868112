#include <shoal/internal/tensors/modules/kept_state.h>

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <stdexcept>
#include <typeinfo>
#include <utility>

namespace shoal {

using namespace torch::optim;

namespace {

KeptState kept(SGDParamState& state, const SGDOptions& options) {
  if (options.momentum() == 0) return {};
  return {nullptr, {{"momentum_buffer", &state.momentum_buffer()}}};
}

template <class State, class Options>
KeptState kept_by_adam(State& state, const Options& options) {
  KeptState all{&state.step(), {{"exp_avg", &state.exp_avg()}, {"exp_avg_sq", &state.exp_avg_sq()}}};
  if (options.amsgrad()) all.tensors.push_back({"max_exp_avg_sq", &state.max_exp_avg_sq()});
  return all;
}
KeptState kept(AdamParamState& state, const AdamOptions& options) { return kept_by_adam(state, options); }
KeptState kept(AdamWParamState& state, const AdamWOptions& options) { return kept_by_adam(state, options); }

KeptState kept(RMSpropParamState& state, const RMSpropOptions& options) {
  KeptState all{&state.step(), {{"square_avg", &state.square_avg()}}};
  if (options.momentum() != 0) all.tensors.push_back({"momentum_buffer", &state.momentum_buffer()});
  if (options.centered()) all.tensors.push_back({"grad_avg", &state.grad_avg()});
  return all;
}

KeptState kept(AdagradParamState& state, const AdagradOptions& options) {
  return {&state.step(), {{"sum", &state.sum()}}, options.initial_accumulator_value()};
}

template <class Options, class State>
void for_each_of(Optimizer& optimizer, MissingState missing, const VisitKept& visit) {
  int index = 0;
  for (OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      auto& states = optimizer.state();
      auto found = states.find(parameter.unsafeGetTensorImpl());
      std::unique_ptr<State> fresh;
      if (found == states.end()) {
        if (missing == MissingState::kSkip) {
          ++index;
          continue;
        }
        fresh = std::make_unique<State>();
      }
      KeptState all = kept(fresh ? *fresh : static_cast<State&>(*found->second), options);
      if (!all.nothing()) visit(index, parameter, all);
      if (fresh && !all.nothing() && missing == MissingState::kMake)
        states[parameter.unsafeGetTensorImpl()] = std::move(fresh);
      ++index;
    }
  }
}

}  // namespace

void for_each_kept(Optimizer& optimizer, MissingState missing, const VisitKept& visit) {
  if (dynamic_cast<SGD*>(&optimizer)) return for_each_of<SGDOptions, SGDParamState>(optimizer, missing, visit);
  if (dynamic_cast<Adam*>(&optimizer)) return for_each_of<AdamOptions, AdamParamState>(optimizer, missing, visit);
  if (dynamic_cast<AdamW*>(&optimizer)) return for_each_of<AdamWOptions, AdamWParamState>(optimizer, missing, visit);
  if (dynamic_cast<RMSprop*>(&optimizer))
    return for_each_of<RMSpropOptions, RMSpropParamState>(optimizer, missing, visit);
  if (dynamic_cast<Adagrad*>(&optimizer))
    return for_each_of<AdagradOptions, AdagradParamState>(optimizer, missing, visit);
  if (dynamic_cast<LBFGS*>(&optimizer))
    throw std::invalid_argument(
        "the state of LBFGS cannot be shared: it is lists of directions that each step makes anew. Use SGD, Adam, "
        "AdamW, "
        "RMSprop or Adagrad");
  throw std::invalid_argument(
      fmt::format("the state of {} cannot be shared: only that of SGD, Adam, AdamW, RMSprop and Adagrad",
                  c10::demangle(typeid(optimizer).name())));
}

bool is_kept_by_parameter(Optimizer& optimizer) {
  return dynamic_cast<SGD*>(&optimizer) || dynamic_cast<Adam*>(&optimizer) || dynamic_cast<AdamW*>(&optimizer) ||
         dynamic_cast<RMSprop*>(&optimizer) || dynamic_cast<Adagrad*>(&optimizer);
}

}  // namespace shoal
