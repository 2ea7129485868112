#include <shoal/workers/train/hogwild_optimizer.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/hogwild/gradients.h>
#include <shoal/internal/workers/train/hogwild/hogwild_state.h>
#include <shoal/internal/workers/train/hogwild/update.h>
#include <shoal/tensors/codec.h>
#include <torch/nn/module.h>

#include <stdexcept>

namespace shoal::hogwild {

void Optimizer::step() {
  State& s = *state_;
  const at::NoGradGuard no_grad;
  const std::vector<Gradient> gradients = take_gradients(s);
  if (s.came && gradients.empty())
    throw std::logic_error(
        "hogwild: no parameter has a gradient: call attach(module) in this process, as the optimizer came from another "
        "one and does not know whose gradients to take");
  if (s.has_bound()) s.participants.come();
  // relaxed: counts, and nothing else hangs on them.
  s.layout->begun.fetch_add(1, std::memory_order_relaxed);
  SHOAL_KILL_POINT("hogwild.step.begun");
  update(s, gradients);
  SHOAL_KILL_POINT("hogwild.step.updated");
  s.layout->finished.fetch_add(1, std::memory_order_relaxed);
  SHOAL_KILL_POINT("hogwild.step.finished");
  if (s.has_bound()) s.participants.step_done();
}

at::Tensor Optimizer::step(const std::function<at::Tensor()>& closure) {
  at::Tensor loss;
  {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  step();
  return loss;
}

void Optimizer::zero_grad(bool set_to_none) {
  for (Parameter& parameter : state_->parameters) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    gradient.detach_();
    if (set_to_none)
      gradient.reset();
    else
      gradient.zero_();
  }
}

void Optimizer::attach(const std::vector<at::Tensor>& given_parameters) {
  State& s = *state_;
  const std::vector<at::Tensor> parameters = each_once(given_parameters);  // as the optimizer has them
  if (parameters.size() != s.parameters.size())
    throw std::invalid_argument(fmt::format("hogwild: attach() got {} parameters, and the optimizer has {}",
                                            parameters.size(), s.parameters.size()));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor &given = parameters[i], &own = s.parameters[i].tensor;
    if (!given.defined() || given.layout() != c10::kStrided || given.scalar_type() != own.scalar_type() ||
        given.sizes() != own.sizes() || given.strides() != own.strides() ||
        given.const_data_ptr() != own.const_data_ptr())
      throw std::invalid_argument(
          fmt::format("hogwild: parameter {} is not the optimizer's: it is other memory, or has another shape", i));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) s.parameters[i].tensor = parameters[i];
  s.tensors = parameters;
  s.came = false;
}

void Optimizer::attach(const torch::nn::Module& module) { attach(module.parameters()); }

const std::vector<at::Tensor>& Optimizer::parameters() const { return state_->tensors; }

// relaxed: counts, and nothing else hangs on them.
std::int64_t Optimizer::steps() const { return state_->layout->begun.load(std::memory_order_relaxed); }
void Optimizer::set_steps(std::int64_t steps) {
  if (steps < 0) throw std::invalid_argument(fmt::format("hogwild: set_steps({}): give 0 or more", steps));
  state_->layout->begun.store(steps, std::memory_order_relaxed);  // relaxed, both: nobody is in a step
  state_->layout->finished.store(steps, std::memory_order_relaxed);
}
std::int64_t Optimizer::finished_steps() const { return state_->layout->finished.load(std::memory_order_relaxed); }

std::size_t Optimizer::groups() const { return state_->layout->group_count; }

double Optimizer::lr(std::size_t group) const {
  if (group >= groups()) throw std::out_of_range(fmt::format("hogwild: group {} of {}", group, groups()));
  return state_->layout->group(group).lr.load(std::memory_order_relaxed);  // relaxed: one number
}

void Optimizer::set_lr(double rate) {
  for (std::size_t group = 0; group < groups(); ++group) set_lr(rate, group);
}

void Optimizer::set_lr(double rate, std::size_t group) {
  if (group >= groups()) throw std::out_of_range(fmt::format("hogwild: group {} of {}", group, groups()));
  if (!(rate >= 0)) throw std::invalid_argument(fmt::format("hogwild: a learning rate of {}", rate));
  state_->layout->group(group).lr.store(rate, std::memory_order_relaxed);  // relaxed: one number
}

void Optimizer::leave() noexcept { state_->participants.leave(); }

namespace {

/// The state's tensors as they cross.
std::vector<at::Tensor> all_kept(const Optimizer::State& state) {
  std::vector<at::Tensor> all;
  for (const Parameter& parameter : state.parameters)
    for (const at::Tensor& kept : parameter.kept)
      if (kept.defined()) all.push_back(kept);
  return all;
}

/// What is kept, in its parameter's shape.
at::Tensor shaped(const at::Tensor& kept, const at::Tensor& parameter) {
  return kept.as_strided(parameter.sizes(), parameter.strides());
}

}  // namespace

OptimizerState Optimizer::state() const {
  const at::NoGradGuard no_grad;
  OptimizerState all;
  State& s = *state_;
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    const Parameter& parameter = s.parameters[i];
    // relaxed: whoever wants all parts of one step keeps the others from stepping.
    if (s.rule() != Rule::sgd)
      all.push_back(at::scalar_tensor(s.layout->count(i).load(std::memory_order_relaxed), at::kLong));
    for (const at::Tensor& kept : parameter.kept)
      if (kept.defined()) all.push_back(shaped(kept, parameter.tensor));
  }
  return all;
}

void Optimizer::load_state(const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  State& s = *state_;
  const OptimizerState own = this->state();
  if (own.size() != state.size())
    throw std::invalid_argument(
        fmt::format("optimizer state: {} tensors, and this optimizer keeps {}", state.size(), own.size()));
  for (std::size_t i = 0; i < own.size(); ++i)
    if (!state[i].defined() || state[i].sizes() != own[i].sizes() || state[i].scalar_type() != own[i].scalar_type())
      throw std::invalid_argument(fmt::format("optimizer state: tensor {} has another shape or type than there", i));
  std::size_t next = 0;
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    if (s.rule() != Rule::sgd)
      s.layout->count(i).store(state[next++].item<std::int64_t>(), std::memory_order_relaxed);  // relaxed: as above
    for (const at::Tensor& kept : s.parameters[i].kept)
      if (kept.defined()) shaped(kept, s.parameters[i].tensor).copy_(state[next++]);
    // torch's first step sets the momentum and later ones dampen what they add; it tells them apart by whether there is a
    // buffer. Here there always is: one of zeros was never set.
    if (s.rule() == Rule::sgd && s.parameters[i].kept[0].defined())
      s.layout->count(i).store(s.parameters[i].kept[0].any().item<bool>() ? 1 : 0,
                               std::memory_order_relaxed);  // relaxed: as above
  }
}

void Optimizer::encode(Encoder& encoder, const Optimizer& optimizer) {
  const State& s = *optimizer.state_;
  encoder.write(encoder.add(s.block));
  std::vector<std::uint32_t> group_of;
  group_of.reserve(s.parameters.size());
  for (const Parameter& parameter : s.parameters) group_of.push_back(parameter.group);
  shoal::encode(encoder, s.tensors);
  shoal::encode(encoder, group_of);
  shoal::encode(encoder, all_kept(s));
}

std::shared_ptr<Optimizer::State> Optimizer::decode(Decoder& decoder, std::uint32_t rule) {
  Hold block = decoder.handle(decoder.read<std::uint32_t>()).share();
  const auto parameters = shoal::decode<std::vector<at::Tensor>>(decoder);
  const auto group_of = shoal::decode<std::vector<std::uint32_t>>(decoder);
  const auto kept = shoal::decode<std::vector<at::Tensor>>(decoder);
  return std::make_shared<State>(std::move(block), Rule(rule), parameters, group_of, kept);
}

}  // namespace shoal::hogwild
