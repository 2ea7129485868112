// Hogwild: several processes train one shared model without locks.
#pragma once

#include <shoal/tensors/optimizer.h>

namespace shoal {

/// The state, in the heap, of an optimizer whose parameters are shared. Encodable.
using SharedOptimizerState = OptimizerState;

/// Shares an optimizer's state for Hogwild (Recht and others, 2011). The parent shares the model (share_memory_), makes
/// an optimizer over its parameters and calls this. Every process gets the result, makes its own optimizer over the
/// shared parameters and calls use_optimizer_state. From then on all of them update the same parameters and the same
/// state (momentum and the like), each with its own gradients and without any lock:
///
/// * A process reads what others are just writing. It sees each element old or new, because an aligned element is read
///   and written whole, but any mixture of a tensor's elements.
/// * If two processes update an element at the same time, one update is lost. With sparse or small steps that is noise,
///   which the method tolerates. With momentum the buffer collects the gradients of all processes: use a smaller
///   momentum than for one process. Optimizers that count their steps (Adam's bias correction) count only their own.
/// * No process owns anything. If one is killed in a step, the step is half done for some elements, and the others go
///   on. Gradients must not be shared: give each process its own, by zero_grad with gradients set to none.
///
/// share_memory_(torch::optim::Optimizer&) says which optimizers it supports. SGD without momentum has no state: the
/// result is empty. Throws std::invalid_argument if a parameter is not shared.
SharedOptimizerState share_optimizer_state(torch::optim::Optimizer& optimizer);

}  // namespace shoal
