// What DistributedDataParallel does, whatever the module's type.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/internal/workers/train/ddp/ddp_options.h>
#include <shoal/workers/train/comm_hook.h>
#include <shoal/workers/train/gradient_owners.h>
#include <shoal/workers/train/join.h>

#include <cstdint>
#include <memory>
#include <typeinfo>
#include <vector>

namespace torch::nn {
class Module;
}

namespace shoal {

/// Keeps the replicas of a module equal. The constructor gives all ranks rank 0's parameters and buffers. Every
/// backward pass leaves the mean of all ranks' gradients, through libtorch's own c10d::Reducer. Buckets are born in the
/// shared heap, so the backend "shm" reduces them in place. Owned by a DistributedDataParallel; used by the thread that
/// trains. If another rank dies, the collective that meets it throws PeerDied, from the constructor, before_forward()
/// or backward(). A gradient that is sparse, or dense, where the other was announced is refused: backward() throws
/// std::invalid_argument, which names the parameter.
class GradientReducer final : public Joinable {
 public:
  /// Collective. Throws std::invalid_argument on all ranks if their modules differ, also in which parameters are trained,
  /// tied, delayed, or of sparse gradients, or in their options; it names the rank and what differs.
  GradientReducer(const DistributedDataParallelOptions& options, torch::nn::Module& module,
                  c10::intrusive_ptr<c10d::ProcessGroup> process_group);
  ~GradientReducer() override;

  /// Throws Error if the last backward pass did not reach every parameter. After that, and if that pass ended by an
  /// exception, all ranks start anew together: a rank whose pass did not gets CollectiveMismatch from the collective
  /// that it is in, or from its next one, be it a gradient's, a buffer's or its Join's, and then starts anew at its next
  /// call, too. So do all where one rank has called this more often than the others: a pass of it has left no gradients.
  void before_forward();
  /// `outputs`: where the walk for unused parameters starts. They are replaced by copies, so that gradients of those
  /// that the loss does not use are known to be none.
  void after_forward(const std::vector<at::Tensor*>& outputs);
  /// Throws for a result of a type in which no tensors can be found.
  [[noreturn]] static void refuse_result(const std::type_info& type);

  bool wants_outputs() const;
  bool syncs() const;
  void set_syncs(bool syncs);
  /// Once, before the first forward pass.
  void register_comm_hook(CommHook hook);
  std::int64_t comm_hook_step() const;
  void set_comm_hook_step(std::int64_t step);
  /// Likewise. Collective.
  void shard_gradients(const GradientOwners& owners);

  c10::intrusive_ptr<c10d::ProcessGroup> join_group() const override;
  void set_join(Join* join) override;
  bool has_failed() const override;
  void start_anew() override;
  void shadow(const JoinStep& step) override;
  void end_join(int root) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
