// The five optimizers' options, as torch checks them, in numbers.
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/hogwild/hogwild_state.h>
#include <shoal/workers/train/hogwild_optimizer.h>

#include <stdexcept>

namespace shoal::hogwild {
namespace {

/// `holds` is false for NaN, too.
void check(bool holds, const char* what, double value, const char* allowed = "0 or more") {
  if (!holds) throw std::invalid_argument(fmt::format("hogwild: {} of {}: give {}", what, value, allowed));
}

void check_adaptive(const auto& o) {
  const auto [beta1, beta2] = o.betas;
  check(beta1 >= 0 && beta1 < 1, "a first beta", beta1, "0 or more, below 1");
  check(beta2 >= 0 && beta2 < 1, "a second beta", beta2, "0 or more, below 1");
}

Numbers numbers_of(const SGDOptions& o) {
  check(o.momentum >= 0, "a momentum", o.momentum);
  if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
    throw std::invalid_argument(
        fmt::format("hogwild: nesterov with a momentum of {} and a dampening of {}: it takes a momentum above 0 and a "
                    "dampening of 0",
                    o.momentum, o.dampening));
  return {.momentum = o.momentum,
          .dampening = o.dampening,
          .weight_decay = o.weight_decay,
          .nesterov = o.nesterov,
          .maximize = o.maximize};
}

Numbers numbers_of_adaptive(const auto& o) {
  check_adaptive(o);
  check(o.eps >= 0, "an eps", o.eps);
  return {.weight_decay = o.weight_decay,
          .beta1 = std::get<0>(o.betas),
          .beta2 = std::get<1>(o.betas),
          .eps = o.eps,
          .amsgrad = o.amsgrad,
          .maximize = o.maximize};
}
Numbers numbers_of(const AdamOptions& o) { return numbers_of_adaptive(o); }
Numbers numbers_of(const AdamWOptions& o) { return numbers_of_adaptive(o); }

Numbers numbers_of(const AdagradOptions& o) {
  check(o.lr_decay >= 0, "a lr_decay", o.lr_decay);
  check(o.initial_accumulator_value >= 0, "an initial_accumulator_value", o.initial_accumulator_value);
  check(o.eps >= 0, "an eps", o.eps);
  return {.weight_decay = o.weight_decay,
          .eps = o.eps,
          .lr_decay = o.lr_decay,
          .initial = o.initial_accumulator_value,
          .maximize = o.maximize};
}

Numbers numbers_of(const RMSpropOptions& o) {
  check(o.alpha >= 0, "an alpha", o.alpha);
  check(o.momentum >= 0, "a momentum", o.momentum);
  check(o.eps >= 0, "an eps", o.eps);
  return {.momentum = o.momentum,
          .weight_decay = o.weight_decay,
          .eps = o.eps,
          .alpha = o.alpha,
          .centered = o.centered,
          .maximize = o.maximize};
}

template <class Options>
std::shared_ptr<Optimizer::State> make(Rule rule, const std::vector<ParamGroup<Options>>& groups,
                                       const SharingOptions& sharing) {
  std::vector<NewGroup> all;
  all.reserve(groups.size());
  SeenTensors seen;  // a tied parameter steps once
  for (const ParamGroup<Options>& group : groups) {
    check(group.options.lr >= 0, "a learning rate", group.options.lr);
    check(group.options.weight_decay >= 0, "a weight decay", group.options.weight_decay);
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : group.params)
      if (!parameter.defined() || seen.is_new(parameter)) parameters.push_back(parameter);
    all.push_back({.parameters = std::move(parameters), .lr = group.options.lr, .numbers = numbers_of(group.options)});
  }
  return std::make_shared<Optimizer::State>(rule, all, sharing);
}

}  // namespace

SGD::SGD(const std::vector<at::Tensor>& parameters, const SGDOptions& options, const SharingOptions& sharing)
    : SGD(std::vector{ParamGroup<SGDOptions>{parameters, options}}, sharing) {}
SGD::SGD(const std::vector<ParamGroup<SGDOptions>>& groups, const SharingOptions& sharing)
    : Optimizer(make(Rule(kRule), groups, sharing)) {}

Adam::Adam(const std::vector<at::Tensor>& parameters, const AdamOptions& options, const SharingOptions& sharing)
    : Adam(std::vector{ParamGroup<AdamOptions>{parameters, options}}, sharing) {}
Adam::Adam(const std::vector<ParamGroup<AdamOptions>>& groups, const SharingOptions& sharing)
    : Optimizer(make(Rule(kRule), groups, sharing)) {}

AdamW::AdamW(const std::vector<at::Tensor>& parameters, const AdamWOptions& options, const SharingOptions& sharing)
    : AdamW(std::vector{ParamGroup<AdamWOptions>{parameters, options}}, sharing) {}
AdamW::AdamW(const std::vector<ParamGroup<AdamWOptions>>& groups, const SharingOptions& sharing)
    : Optimizer(make(Rule(kRule), groups, sharing)) {}

Adagrad::Adagrad(const std::vector<at::Tensor>& parameters, const AdagradOptions& options,
                 const SharingOptions& sharing)
    : Adagrad(std::vector{ParamGroup<AdagradOptions>{parameters, options}}, sharing) {}
Adagrad::Adagrad(const std::vector<ParamGroup<AdagradOptions>>& groups, const SharingOptions& sharing)
    : Optimizer(make(Rule(kRule), groups, sharing)) {}

RMSprop::RMSprop(const std::vector<at::Tensor>& parameters, const RMSpropOptions& options,
                 const SharingOptions& sharing)
    : RMSprop(std::vector{ParamGroup<RMSpropOptions>{parameters, options}}, sharing) {}
RMSprop::RMSprop(const std::vector<ParamGroup<RMSpropOptions>>& groups, const SharingOptions& sharing)
    : Optimizer(make(Rule(kRule), groups, sharing)) {}

}  // namespace shoal::hogwild
