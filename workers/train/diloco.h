// DiLoCo: ranks step alone, and an outer optimizer steps by how far they have come.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/tensors/optimizer.h>
#include <shoal/workers/train/make_optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// How DiLoCo makes its outer steps.
struct DiLoCoOptions {
  std::int64_t sync_every = 500;  ///< inner steps from one outer step to the next
  /// Makes the outer optimizer. Null: SGD with a learning rate of 0.7 and a Nesterov momentum of 0.9, as in the paper.
  MakeOptimizer outer_optimizer = nullptr;
  /// In which type differences go from rank to rank: kBFloat16 is half of float's bytes. They are divided before they
  /// are cast. Nothing: the parameters' own.
  std::optional<c10::ScalarType> type = std::nullopt;
};

/// What DiLoCo keeps, but for the outer optimizer's options. Encodable.
struct DiLoCoState {
  std::int64_t inner_steps = 0;   ///< since the last outer step
  std::vector<at::Tensor> start;  ///< each parameter's value after the last outer step
  OptimizerState outer;           ///< the outer optimizer's
};

/// Distributed low-communication training (Douillard and others, 2023), the next step after PeriodicAverager: each
/// rank, or each host with DistributedDataParallel inside, takes `sync_every` steps by its own inner optimizer. Then the
/// mean over the group of `start - parameters` is a gradient, by which an outer optimizer steps from `start`, and all
/// ranks go on from there. The ranks talk once in `sync_every` steps.
///
///   auto host = shoal::split(world, host_number, 0);                        // the ranks that talk in each step
///   shoal::DistributedDataParallel<Net> ddp(net, host);                     // first
///   torch::optim::AdamW inner(net->parameters(), 4e-4);
///   shoal::DiLoCo diloco(net->parameters(), world, {.sync_every = 500});
///   ...
///   inner.step();
///   diloco.step();
///
/// With a learning rate of 1, without momentum, an outer step is the mean of the parameters. The inner optimizer's state
/// stays each rank's own, and so do buffers. Ranks that take the same inner steps count once each: with unequal hosts
/// the mean is weighted by their ranks; give the group of one rank a host for another one.
///
/// Parameters of half types lose small outer steps: give FloatMasters' copies. It keeps `start`, one more buffer of the
/// parameters' size, and the outer optimizer's state. Takes no part in a Join. One thread. If a rank dies, step() throws
/// PeerDied, and this rank's parameters are those of its last inner step.
class DiLoCo {
 public:
  /// Collective: gives all ranks rank 0's parameters; so it comes after a DistributedDataParallel inside a host, which gives
  /// them its own rank 0's. Throws std::invalid_argument if the ranks' parameters differ in
  /// number, shape or type, if there are none or one is no dense tensor of floating point numbers, and for a `sync_every`
  /// below 1.
  DiLoCo(const std::vector<at::Tensor>& parameters, c10::intrusive_ptr<c10d::ProcessGroup> process_group,
         const DiLoCoOptions& options = {});
  DiLoCo(DiLoCo&&) noexcept;
  DiLoCo& operator=(DiLoCo&&) noexcept;
  ~DiLoCo();

  /// After each step of the inner optimizer; each `sync_every`-th call makes an outer step, and is a collective. Returns
  /// whether it did: from then until the next inner step all ranks' parameters are equal.
  bool step();
  /// Makes an outer step now, whatever the number of inner steps: before the end, or before an evaluation. Collective.
  void outer_step();

  /// For learning-rate schedules, which do the same on all ranks. Its parameters are those that were given.
  torch::optim::Optimizer& outer();
  const std::vector<at::Tensor>& parameters() const;  ///< as they were given
  std::int64_t inner_steps() const;                   ///< since the last outer step
  void set_inner_steps(std::int64_t steps);           ///< for what loads `start` and the outer optimizer, too
  const std::vector<at::Tensor>& start() const;  ///< each parameter's value after the last outer step: the tensors kept

  /// All that is kept; the tensors are its own. CheckpointParts::add() writes it under the parameters' names.
  DiLoCoState state_dict();
  /// Copies what state_dict() has returned. Throws std::invalid_argument if it does not fit. Not collective: all ranks
  /// load the same.
  void load_state_dict(const DiLoCoState& state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
