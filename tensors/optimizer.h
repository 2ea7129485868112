// The state of libtorch's optimizers in memory that several processes share.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace shoal {

/// The tensors of an optimizer's state, parameter by parameter in the optimizer's order: for each parameter what the
/// optimizer keeps, beginning with the number of steps (0-d, int64) if it counts them. Encodable.
using OptimizerState = std::vector<at::Tensor>;

/// Moves the optimizer's state into the shared heap, in place, like share_memory_ of its tensors. State that the
/// optimizer would make in its first step is made now, with the same values. SGD's momentum starts at zero, while
/// torch's first step starts it with the gradient: that is the same unless dampening is set. Supports SGD, Adam, AdamW,
/// RMSprop and Adagrad. Throws std::invalid_argument, which names the type, for LBFGS, whose state is lists that grow
/// and shrink, and for unknown optimizers.
void share_memory_(torch::optim::Optimizer& optimizer);

/// The optimizer's state; makes what is missing. The tensors are the optimizer's own, so they are shared if its state
/// is. The counts of steps are copies: each process counts its own.
OptimizerState optimizer_state(torch::optim::Optimizer& optimizer);

/// Makes `state`, which another process has sent, the optimizer's own. The optimizers must be of the same kind, have
/// the same options as far as these decide what is kept, and the same order of parameters. Otherwise throws
/// std::invalid_argument, which names the parameter and what does not fit.
void use_optimizer_state(torch::optim::Optimizer& optimizer, const OptimizerState& state);

}  // namespace shoal
