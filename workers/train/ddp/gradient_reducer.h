// What DistributedDataParallel does, whatever the module's type.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <typeinfo>
#include <vector>

namespace c10d {
class ProcessGroup;
}
namespace torch::nn {
class Module;
}

namespace shoal {

/// The options of torch.nn.parallel.DistributedDataParallel.
struct DistributedDataParallelOptions {
  /// Gradients are reduced in buckets of this many bytes. The first bucket is smaller, so that the first reduction
  /// starts early.
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;  ///< of the first one
  /// Looks for parameters that a forward pass does not use. Costs a walk over the graph.
  bool find_unused_parameters = false;
  /// Gradients lie in the buckets: no copy back. Optimizers may set them to none or to zero.
  bool gradient_as_bucket_view = true;
  /// Each forward pass begins by giving all ranks rank 0's buffers (of batch norms, for example).
  bool broadcast_buffers = true;
};

/// Keeps the replicas of a module equal. The constructor gives all ranks rank 0's parameters and buffers. Every
/// backward pass leaves the mean of all ranks' gradients, through libtorch's own c10d::Reducer. Buckets are born in the
/// shared heap, so the backend "shm" reduces them in place. Owned by a DistributedDataParallel; used by the thread that
/// trains. If another rank dies, the collective that meets it throws PeerDied, from the constructor, before_forward()
/// or backward(). Sparse gradients are refused: backward() throws std::invalid_argument, which names the parameter.
class GradientReducer {
 public:
  /// Collective. Throws std::invalid_argument on all ranks if their modules differ; it names the parameter.
  GradientReducer(const DistributedDataParallelOptions& options, torch::nn::Module& module,
                  c10::intrusive_ptr<c10d::ProcessGroup> process_group);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Throws Error if the last backward pass did not reach every parameter. If that pass ended by an exception, all
  /// ranks start anew together: a rank whose pass did not gets std::invalid_argument from the collective that it is in,
  /// or from its next one, and then starts anew at its next call, too.
  void before_forward();
  /// `outputs`: where the walk for unused parameters starts. They are replaced by copies, so that gradients of those
  /// that the loss does not use are known to be none.
  void after_forward(const std::vector<at::Tensor*>& outputs);
  /// Throws for a result of a type in which no tensors can be found.
  [[noreturn]] static void refuse_result(const std::type_info& type);

  bool wants_outputs() const;
  bool syncs() const;
  void set_syncs(bool syncs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
