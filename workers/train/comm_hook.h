// Communication hooks: how a bucket of gradients is reduced.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
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
  /// Where a bucket is in its training: what the functions of these names say.
  struct Place {
    std::size_t index = 0;  ///< index()
    bool is_last = false;   ///< is_last()
    std::int64_t step = 1;  ///< step()
    int divisor = 1;        ///< divisor()
    bool all_come = true;   ///< all_come()
  };
  /// Of libtorch's, which outlives this one.
  GradBucket(c10d::GradBucket& bucket, const Place& place) : bucket_(bucket), place_(place) {}

  std::size_t index() const { return place_.index; }  ///< they come in the order 0, 1, ..., the same on all ranks
  bool is_last() const { return place_.is_last; }     ///< of this step
  /// Which step of this DistributedDataParallel it is, from 1: backward passes in which a bucket came. The same on all
  /// ranks; a resumed training sets it by set_comm_hook_step().
  std::int64_t step() const { return place_.step; }
  /// Whether every bucket comes in each step: not with skip_all_reduce_unused_params.
  bool all_come() const { return place_.all_come; }
  /// All gradients, one after the other; or one sparse gradient. Of this rank: a hook takes the mean.
  const at::Tensor& buffer() const;
  void set_buffer(const at::Tensor& buffer);  ///< in place of buffer(), for a hook that calls another one
  /// Views of the buffer, in the parameters' shapes. The buffer has the elements as they lie in the parameter's memory:
  /// of a transposed weight, or a channels-last one, these views show them in another order than the gradient does.
  std::vector<at::Tensor> gradients() const;
  std::vector<at::Tensor> parameters() const;  ///< whose gradients these are, in the same order
  /// By what the sum over all ranks is divided: the number of ranks, or in a Join of those that have a batch.
  int divisor() const { return place_.divisor; }

 private:
  c10d::GradBucket& bucket_;
  Place place_;
};

/// What a hook returns: a future of libtorch's whose value is the reduced buffer, in a tensor or a list of one.
using HookResult = c10::intrusive_ptr<c10::ivalue::Future>;

/// Reduces a bucket in place of the mean over all ranks: DistributedDataParallel::register_comm_hook(). It is called in
/// the thread of the backward pass, in the order of the buckets, and may return before it is done. All ranks' hooks do
/// the same collectives in the same order, also where a rank has no batch (see Join) and all its gradients are zero.
/// It begins them in this thread, or in continuations of the works of such groups: those of other threads belong to no
/// forward pass, and ranks that differ in it get CollectiveMismatch. What it throws comes out of backward(). comm_hooks.h
/// has some.
using CommHook = std::function<HookResult(GradBucket&)>;

/// What is there already, as a hook's result.
HookResult hook_result(const at::Tensor& reduced);
/// `finish` makes the result when the work is over, in the thread in which it ends. It may not wait for other
/// collectives.
HookResult hook_result_after(const c10::intrusive_ptr<c10d::Work>& work, std::function<at::Tensor()> finish);

}  // namespace shoal
