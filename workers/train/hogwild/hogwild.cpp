#include <shoal/workers/train/hogwild.h>

#include <fmt/format.h>
#include <shoal/tensors/share.h>
#include <torch/optim/optimizer.h>

#include <stdexcept>

namespace shoal {

SharedOptimizerState share_optimizer_state(torch::optim::Optimizer& optimizer) {
  int index = 0;
  for (auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      if (!is_shared(parameter))
        throw std::invalid_argument(
            fmt::format("parameter {} is not in shared memory: call share_memory_(module) first", index));
      ++index;
    }
  share_memory_(optimizer);
  return optimizer_state(optimizer);
}

}  // namespace shoal
