// Optimizers by name, libtorch's and Hogwild's, as one.
#pragma once

#include <shoal/workers/checkpoint/checkpoint_parts.h>
#include <shoal/workers/train/hogwild_optimizer.h>

#include <memory>
#include <variant>
#include <vector>

#include "train_fashion_mnist/settings.h"

/// Hogwild's, one for all processes: crosses to the ranks. Nothing in other modes.
using SharedOptimizer = std::variant<std::monostate, shoal::hogwild::SGD, shoal::hogwild::Adam, shoal::hogwild::AdamW,
                                     shoal::hogwild::Adagrad, shoal::hogwild::RMSprop>;

/// For the parent, over parameters in shared memory.
SharedOptimizer make_shared_optimizer(const Settings& settings, const std::vector<at::Tensor>& parameters);

/// What a rank's loop steps with. One thread.
class AnyOptimizer {
 public:
  /// libtorch's for these parameters, if `shared` is nothing; otherwise the shared one, over `module`, whose parameters
  /// have to be the shared ones.
  AnyOptimizer(const Settings& settings, const torch::nn::Module& module, SharedOptimizer shared);
  AnyOptimizer(const AnyOptimizer&) = delete;
  AnyOptimizer& operator=(const AnyOptimizer&) = delete;

  /// Gradients become none.
  void zero_grad();
  void step();
  /// Of a shared one for all processes.
  void set_lr(double rate);
  /// Part "optimizer". This object has to outlive the parts.
  void add_to(shoal::CheckpointParts& parts, const torch::nn::Module& module);
  /// libtorch's; null if it is a shared one.
  torch::optim::Optimizer* own() const { return own_.get(); }

 private:
  std::unique_ptr<torch::optim::Optimizer> own_;
  SharedOptimizer shared_;
  shoal::hogwild::Optimizer* hogwild_ = nullptr;  // what shared_ holds
};
