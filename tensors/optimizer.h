// The state of libtorch's optimizers in memory that several processes share.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace shoal {

/// The tensors of an optimizer's state: for each parameter in its order what the optimizer keeps for it, beginning with
/// the number of steps (0-d, int64) where it counts them. Encodable as it is.
using OptimizerState = std::vector<at::Tensor>;

/// Moves the state into the shared heap, in place, as share_memory_ of its tensors. What the optimizer would make in
/// its first step is made now, as it would be then; SGD's momentum starts at zero, while torch's first step starts it
/// with the gradient: the same unless dampening is set. SGD, Adam, AdamW, RMSprop, Adagrad; LBFGS, whose state is lists
/// that grow and shrink, and unknown ones throw std::invalid_argument by name.
void share_memory_(torch::optim::Optimizer& optimizer);

/// Its state, made where it is missing. The tensors are the optimizer's own: shared if they are. The counts of steps
/// are copies: each process counts its own.
OptimizerState optimizer_state(torch::optim::Optimizer& optimizer);

/// Makes the optimizer's state that memory: what a process does that gets the state of another's. Same kind of
/// optimizer, same options as far as they decide what is kept, parameters in the same order: std::invalid_argument,
/// naming the parameter and what of it does not fit.
void use_optimizer_state(torch::optim::Optimizer& optimizer, const OptimizerState& state);

}  // namespace shoal
