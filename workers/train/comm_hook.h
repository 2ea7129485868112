// Communication hooks: how a bucket of gradients is reduced.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace c10d {
class GradBucket;
class ProcessGroup;
class Work;
}  // namespace c10d
namespace c10::ivalue {
struct Future;
}

namespace shoal {

/// Some parameters' gradients in one flat tensor. It is valid during the hook's call; the tensors are until the next
/// step.
class GradBucket {
 public:
  /// `divisor`: what divisor() says.
  GradBucket(c10d::GradBucket& bucket, int divisor) : bucket_(bucket), divisor_(divisor) {}

  std::size_t index() const;  ///< buckets come in the order 0, 1, ... in each step, the same on all ranks
  bool is_last() const;       ///< of this step
  /// All gradients, one after the other; or one sparse gradient. Of this rank: a hook takes the mean.
  const at::Tensor& buffer() const;
  void set_buffer(const at::Tensor& buffer);   ///< in place of buffer(), for a hook that calls another one
  std::vector<at::Tensor> gradients() const;   ///< views of the buffer, in the parameters' shapes
  std::vector<at::Tensor> parameters() const;  ///< whose gradients these are, in the same order
  /// By what the sum over all ranks is divided: the number of ranks, or in a Join of those that have a batch.
  int divisor() const { return divisor_; }

 private:
  c10d::GradBucket& bucket_;
  int divisor_;
};

/// What a hook returns: a future of libtorch's whose value is the reduced buffer, in a tensor or a list of one.
using HookResult = c10::intrusive_ptr<c10::ivalue::Future>;

/// Reduces a bucket in place of the mean over all ranks: DistributedDataParallel::register_comm_hook(). It is called in
/// the thread of the backward pass, in the order of the buckets, and may return before it is done. All ranks' hooks do
/// the same collectives in the same order, also where a rank has no batch (see Join) and all its gradients are zero.
/// What it throws comes out of backward(). comm_hooks.h has some.
using CommHook = std::function<HookResult(GradBucket&)>;

/// What is there already, as a hook's result.
HookResult hook_result(const at::Tensor& reduced);
/// `finish` makes the result when the work is over, in the thread in which it ends. It may not wait for other
/// collectives.
HookResult hook_result_after(const c10::intrusive_ptr<c10d::Work>& work, std::function<at::Tensor()> finish);

}  // namespace shoal
