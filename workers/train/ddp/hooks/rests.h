// What a hook has left out of each gradient, and adds in a later step.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/comm_hook.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// Whether these are the same tensors in the same order, and not only equal ones.
bool are_same(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others);

/// A flat tensor for each bucket, which lies as the bucket does. libtorch's Reducer makes buckets anew: after its first
/// step, after an exception, at a Join's end. Then each parameter's part moves to where the parameter lies. What was
/// loaded waits for its parameter's first bucket. Owned by one hook.
class Rests {
 public:
  /// Of this bucket; zeros at first. Valid until the next call.
  at::Tensor& of(const GradBucket& bucket);

  /// Copies, [numel], of what there is of these parameters; undefined where there is nothing.
  std::vector<at::Tensor> save(const std::vector<at::Tensor>& parameters) const;
  /// Forgets all, and takes copies of these.
  void load(const std::vector<at::Tensor>& left_out, const std::vector<at::Tensor>& parameters);

 private:
  struct Rest {
    std::vector<at::Tensor> parameters;
    std::vector<std::int64_t> offsets;  // of their parts
    at::Tensor values;
  };
  Rest made_for(const GradBucket& bucket, std::vector<at::Tensor> parameters);
  static at::Tensor part_of(const std::vector<Rest>& all, const at::Tensor& parameter);

  std::vector<Rest> rests_;      // by bucket
  std::vector<Rest> displaced_;  // of buckets as they lay before; of this step
  std::vector<Rest> loaded_;     // one for each parameter that has had no bucket since
  std::int64_t step_ = 0;
};

}  // namespace shoal
