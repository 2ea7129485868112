#include "train_fashion_mnist/optimizer.h"

#include <shoal/tensors/codec.h>
#include <torch/torch.h>

#include <type_traits>
#include <utility>

namespace {

namespace hogwild = shoal::hogwild;

constexpr double kMomentum = 0.9;
/// The buffers collect every process's gradients, so each adds less.
constexpr double kHogwildMomentum = 0.5;

std::unique_ptr<torch::optim::Optimizer> make_own(const Settings& settings, std::vector<at::Tensor> parameters) {
  const double lr = rate_of(settings);
  switch (settings.optimizer) {
    case OptimizerName::sgd:
      return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(lr));
    case OptimizerName::momentum:
      return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                 torch::optim::SGDOptions(lr).momentum(kMomentum));
    case OptimizerName::adam:
      return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(lr));
    case OptimizerName::adamw:
      return std::make_unique<torch::optim::AdamW>(std::move(parameters), torch::optim::AdamWOptions(lr));
    case OptimizerName::adagrad:
      return std::make_unique<torch::optim::Adagrad>(std::move(parameters), torch::optim::AdagradOptions(lr));
    case OptimizerName::rmsprop:
      return std::make_unique<torch::optim::RMSprop>(std::move(parameters), torch::optim::RMSpropOptions(lr));
  }
  return nullptr;
}

}  // namespace

SharedOptimizer make_shared_optimizer(const Settings& settings, const std::vector<at::Tensor>& parameters) {
  const double lr = rate_of(settings);
  switch (settings.optimizer) {
    case OptimizerName::sgd:
      return hogwild::SGD(parameters, {.lr = lr});
    case OptimizerName::momentum:
      return hogwild::SGD(parameters, {.lr = lr, .momentum = kHogwildMomentum});
    case OptimizerName::adam:
      return hogwild::Adam(parameters, {.lr = lr});
    case OptimizerName::adamw:
      return hogwild::AdamW(parameters, {.lr = lr});
    case OptimizerName::adagrad:
      return hogwild::Adagrad(parameters, {.lr = lr});
    case OptimizerName::rmsprop:
      return hogwild::RMSprop(parameters, {.lr = lr});
  }
  return {};
}

AnyOptimizer::AnyOptimizer(const Settings& settings, const torch::nn::Module& module, SharedOptimizer shared)
    : shared_(std::move(shared)) {
  std::visit(
      [&]<class T>(T& optimizer) {
        if constexpr (!std::is_same_v<T, std::monostate>) hogwild_ = &optimizer;
      },
      shared_);
  if (hogwild_ != nullptr)
    hogwild_->attach(module);
  else
    own_ = make_own(settings, module.parameters());
}

void AnyOptimizer::zero_grad() {
  if (own_)
    own_->zero_grad();  // to none: the reducer hands out views of its buckets
  else
    hogwild_->zero_grad();
}

void AnyOptimizer::step() {
  if (own_)
    own_->step();
  else
    hogwild_->step();
}

void AnyOptimizer::set_lr(double rate) {
  if (own_)
    for (auto& group : own_->param_groups()) group.options().set_lr(rate);
  else
    hogwild_->set_lr(rate);
}

void AnyOptimizer::add_to(shoal::CheckpointParts& parts, const torch::nn::Module& module) {
  if (own_)
    parts.add("optimizer", *own_, module);
  else
    parts.add(
        "optimizer", [this] { return hogwild_->state(); },
        [this](const shoal::OptimizerState& state) { hogwild_->load_state(state); });
}
