// What a hook has left out of each gradient, and adds in a later step.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/comm_hook.h>

#include <unordered_map>
#include <vector>

namespace shoal {

/// Whether these are the same tensors in the same order, and not only equal ones.
bool are_same(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others);
bool have_one_in_common(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others);

/// A flat tensor for each bucket, which lies as the bucket does. libtorch's Reducer makes buckets anew: after its first
/// step, after an exception, at a Join's end. Then each parameter's part moves to where the parameter lies, when its
/// bucket comes: where an exception comes before, it stays where it is. Owned by one hook.
class Rests {
 public:
  /// Of this bucket; zeros at first. Valid until the next call.
  at::Tensor& of(const GradBucket& bucket);

  /// Copies, [numel], of what there is of these parameters; undefined where there is nothing.
  std::vector<at::Tensor> save(const std::vector<at::Tensor>& parameters) const;
  /// Forgets all, and takes copies of these.
  void load(const std::vector<at::Tensor>& left_out, const std::vector<at::Tensor>& parameters);

 private:
  struct Bucket {
    std::vector<at::Tensor> parameters;
    at::Tensor values;
  };
  /// A parameter's: a view of its bucket's values, or what was loaded.
  struct Part {
    at::Tensor parameter;  // keeps the key from becoming another tensor's
    at::Tensor values;
  };
  Bucket made_for(const GradBucket& bucket, std::vector<at::Tensor> parameters);

  std::vector<Bucket> buckets_;  // by index
  std::unordered_map<const c10::TensorImpl*, Part> parts_;
};

/// Forgets those of `buckets` that have one of these parameters: it lies in another bucket now.
template <class Bucket>
void forget_buckets_of(std::vector<Bucket>& buckets, const std::vector<at::Tensor>& parameters) {
  for (Bucket& bucket : buckets)
    if (have_one_in_common(bucket.parameters, parameters)) bucket = {};
}

}  // namespace shoal
