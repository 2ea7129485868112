// Gradients that are reduced in one piece, after the backward pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/internal/workers/train/ddp/module_check.h>

#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// Owned by a GradientReducer. The parameters' gradients go through one buffer for each element type, in the heap.
class DelayedGradients {
 public:
  explicit DelayedGradients(const NamedTensorList& parameters);

  /// Collective, if there are any: each gradient becomes the sum of all ranks' divided by `divisor`. One that this rank
  /// does not have counts as zero, and is there afterwards.
  void reduce(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, int divisor);
  /// reduce() on a rank that has no gradients.
  void reduce_nothing(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);

 private:
  struct Piece {
    std::vector<at::Tensor> parameters;
    at::Tensor buffer;
  };
  void exchange(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, int divisor, bool has_gradients);

  std::vector<Piece> pieces_;
};

}  // namespace shoal
