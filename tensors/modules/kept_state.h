// What libtorch's optimizers keep for each parameter, under torch's names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace shoal {

/// What an optimizer keeps for one parameter.
struct KeptState {
  std::int64_t* step = nullptr;
  struct Part {
    const char* name;  // as Python's torch calls it
    at::Tensor* tensor;
  };
  std::vector<Part> tensors;
  double initial = 0;  // of all their elements

  bool nothing() const { return !step && tensors.empty(); }
};

using VisitKept = std::function<void(int index, const at::Tensor& parameter, KeptState& kept)>;

/// What becomes of state that the optimizer would make in its first step.
enum class MissingState {
  kMake,  ///< it is made, with what visit sets in it
  kShow,  ///< visit sees what it would be, and it is not kept
  kSkip,  ///< visit does not see it
};

/// Calls visit for each parameter for which the optimizer keeps anything. Throws std::invalid_argument for LBFGS and
/// for unknown optimizers.
void for_each_kept(torch::optim::Optimizer& optimizer, MissingState missing, const VisitKept& visit);

/// Whether for_each_kept() knows the optimizer.
bool is_kept_by_parameter(torch::optim::Optimizer& optimizer);

}  // namespace shoal
