// ZeroRedundancyOptimizer: each rank keeps a part of the optimizer's state.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/workers/train/gradient_owners.h>
#include <shoal/workers/train/join.h>
#include <shoal/workers/train/make_optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace shoal {

/// An optimizer of all parameters whose state is spread over the ranks (ZeRO, stage 1: Rajbhandari and others, 2019),
/// like torch.distributed.optim.ZeroRedundancyOptimizer. Each rank steps on its own parameters alone and then gives
/// them to the others: one rank's memory and time of the optimizer are divided by the number of ranks. Parameters go to
/// ranks by size, the largest first, each to the rank that has the least. The numbers are those of the optimizer alone.
///
///   shoal::ZeroRedundancyOptimizer optimizer(
///       net->parameters(), shoal::optimizer_maker<torch::optim::Adam>(torch::optim::AdamOptions(1e-3)), process_group);
///
/// All ranks make it over the same parameters in the same order, with equal values, and call step() equally often;
/// gradients are the same on all, as DistributedDataParallel leaves them. Over the copies of FloatMasters it goes as
/// over the parameters: give it masters.parameters(). One thread. If a rank dies, step() throws PeerDied, and this
/// rank's parameters are partly new.
///
/// In a Join it stands behind DistributedDataParallel. Ranks without a batch step on their parameters as the others do:
/// by the options that those have in that step (a schedule's learning rate) and by their gradients as they are at
/// step(), clipped for example, which the first rank with a batch sends. It takes about as long as giving the
/// parameters to the others. Three things do not cross: sparse gradients, which stay DistributedDataParallel's; with
/// shard_gradients(), where a rank has none of the others' gradients, what changes them other than clip_grad_norm_()
/// here; options of a class of the user's without serialize(), which must not change (the log has a warning).
class ZeroRedundancyOptimizer final : public Joinable {
 public:
  /// Collective. Throws std::invalid_argument if there are no parameters or another rank's differ in number, type or shape (two
  /// of one shape in each other's place are not seen: they would get each other's values), or in the options that `make`
  /// gives them, and what `make` throws; where it throws on one rank, the others get std::invalid_argument.
  ZeroRedundancyOptimizer(const std::vector<at::Tensor>& parameters, MakeOptimizer make,
                          c10::intrusive_ptr<c10d::ProcessGroup> process_group);
  /// Of several groups with their own options.
  ZeroRedundancyOptimizer(const ParameterGroups& groups, MakeOptimizer make,
                          c10::intrusive_ptr<c10d::ProcessGroup> process_group);
  ~ZeroRedundancyOptimizer() override;

  void step();  ///< collective
  /// As torch::optim::Optimizer has it: calls `closure` once, with gradients enabled, steps, and returns the loss. The
  /// closure is called on each rank that has a batch and has the backward pass, and in a Join DistributedDataParallel's
  /// forward pass, in it. Throws std::invalid_argument for a null function; what the closure throws comes out, and this
  /// rank has not stepped.
  at::Tensor step(const std::function<at::Tensor()>& closure);
  void zero_grad(bool set_to_none = true);  ///< of all parameters
  /// As torch::optim::Optimizer has it, for layers that are trained later: the parameters go to the ranks that have the
  /// least; those that are there stay where they are. Without options it has the maker's. Collective, and not in a
  /// Join; owners() has them from then on, so shard_gradients() comes behind it. Throws std::invalid_argument, and
  /// changes nothing, as the constructor does, for a parameter that is there already, and for Adagrad, whose step in
  /// libtorch needs state that its constructor alone makes.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);
  /// This rank's part: for learning-rate schedulers, which do the same on all ranks. It has all groups, some of them
  /// without parameters.
  torch::optim::Optimizer& local();
  /// Of this rank's state, with what the first step will make. Makes nothing.
  std::size_t state_bytes();
  const std::vector<std::int64_t>& elements() const;  ///< of each rank's parameters
  /// Whose parameters are whose: for DistributedDataParallel::shard_gradients(). Of FloatMasters' copies the module's
  /// parameters are named, which have the gradients.
  GradientOwners owners() const;

  /// torch::nn::utils::clip_grad_norm_ of all parameters, where a rank may have the gradients of its own alone. Returns
  /// the norm of all of them, the same bits on all ranks. `norm_type`: infinity is the largest element. Collective. In
  /// a Join it comes before step(), behind the backward pass: elsewhere std::invalid_argument. A rank whose gradients
  /// have no norm throws what libtorch does, the others Error; nothing is clipped.
  double clip_grad_norm_(double max_norm, double norm_type = 2);

  /// Collective: root gets an ordinary optimizer of all parameters with everybody's state, for torch::save; the others
  /// get null. State that no step has made yet is not there, either. For what optimizer_state() supports; throws
  /// std::invalid_argument for others, and for a root that is no rank.
  std::unique_ptr<torch::optim::Optimizer> consolidate(int root = 0);
  /// An ordinary optimizer of all parameters, without state: to torch::load into, for load_state().
  std::unique_ptr<torch::optim::Optimizer> make_whole() const;
  /// Takes this rank's part of the state and the options of an optimizer of all parameters. Not collective. Throws
  /// std::invalid_argument if it has other parameters.
  void load_state(torch::optim::Optimizer& whole);

  c10::intrusive_ptr<c10d::ProcessGroup> join_group() const override;
  void set_join(Join* join) override;
  void shadow(const JoinStep& step) override;
  void end_join(int root) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
