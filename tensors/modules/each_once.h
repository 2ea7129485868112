// Lists of tensors without repetitions.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>
#include <vector>

namespace shoal {

/// Which tensors of a list, or of several, are seen for the first time. C++'s Module::parameters() names a tied parameter as
/// often as modules have it; Python's names it once.
class SeenTensors {
 public:
  bool is_new(const at::Tensor& tensor) { return seen_.insert(tensor.unsafeGetTensorImpl()).second; }

 private:
  std::unordered_set<const c10::TensorImpl*> seen_;
};

/// Each of them once, in the order in which they come first.
inline std::vector<at::Tensor> each_once(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> once;
  once.reserve(tensors.size());
  SeenTensors seen;
  for (const at::Tensor& tensor : tensors)
    if (seen.is_new(tensor)) once.push_back(tensor);
  return once;
}

}  // namespace shoal
