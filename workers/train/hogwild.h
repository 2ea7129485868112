// Several processes that train one shared model without locks.
#pragma once

#include <shoal/tensors/optimizer.h>

namespace shoal {

/// The state of an optimizer whose parameters are shared, in the heap; encodable as it is.
using SharedOptimizerState = OptimizerState;

/// For Hogwild (Recht and others, 2011): the parent shares the model (share_memory_), makes an optimizer over
/// its parameters and calls this; the result goes to every process, which makes its own optimizer over the
/// shared parameters and calls use_optimizer_state. From then on all of them update the same parameters and
/// the same state (momentum and the like), each with its own gradients and without any lock:
///
/// * A process reads what others are just writing: it sees each element old or new (an aligned element is
///   read and written whole), but of a tensor any mixture.
/// * Two updates of an element at the same time: one of them is lost. With sparse or small steps that is
///   noise, which is what the method rests on. With momentum the buffer collects all processes' gradients,
///   so use a smaller momentum than for one process. Optimizers that count their steps (Adam's bias correction)
///   count their own only.
/// * Nothing is owned by a process: one that is killed in a step leaves the step half done for some
///   elements, and the others go on. Gradients must not be shared (give each process its own, by zero_grad
///   with gradients set to none).
///
/// Which optimizers: see share_memory_(torch::optim::Optimizer&). Without momentum SGD has no state: the result is
/// empty. Throws std::invalid_argument where a parameter is not shared.
SharedOptimizerState share_optimizer_state(torch::optim::Optimizer& optimizer);

}  // namespace shoal
