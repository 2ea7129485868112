// Communication hooks that are ready to use: half types, low ranks, the largest elements, local steps.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/workers/train/comm_hook.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal {

using ProcessGroupOfHook = c10::intrusive_ptr<c10d::ProcessGroup>;  ///< the ranks among which a hook reduces

/// Hooks for DistributedDataParallel::register_comm_hook(), with the names of torch's. They keep the group. Sparse
/// gradients are reduced as they are. What a hook remembers from step to step, it has for itself: make one for each
/// model, the same on all ranks. A step is GradBucket::step(), which a training that is resumed sets.

/// The mean, as without a hook.
CommHook all_reduce_hook(const ProcessGroupOfHook& process_group);

/// The mean of gradients cast to `type`. They are divided before they are cast, added in float and rounded once, so no
/// intermediate sum overflows. With kFloat it reduces the gradients of a bfloat16 module in float.
CommHook compress_hook(const ProcessGroupOfHook& process_group, c10::ScalarType type);
/// compress_hook() to float16: ten bits of mantissa, largest value 65,504.
CommHook fp16_compress_hook(const ProcessGroupOfHook& process_group);
/// compress_hook() to bfloat16: float's range, seven bits of mantissa.
CommHook bf16_compress_hook(const ProcessGroupOfHook& process_group);
/// Another hook with the bucket cast to `type`; its result is cast back. For example for power_sgd_hook().
CommHook compressed(CommHook hook, c10::ScalarType type);

/// What a hook remembers of some parameters, in their order, each in a tensor of its own on the CPU, in the type of the
/// buckets; an undefined tensor: nothing. Encodable.
struct CommHookState {
  std::vector<at::Tensor> left_out;  ///< [numel]: of the gradient, to be added in a later step, as the parameter lies
  std::vector<at::Tensor>
      factors;  ///< [numel / size(0), rank]: PowerSGD's second factor, the same on all ranks after a whole step
  std::vector<std::vector<std::int64_t>> strides = {};  ///< the parameters'; empty: not known, and not compared
};

/// A hook that remembers something from step to step. register_comm_hook() and compressed() take it, and so does
/// CheckpointParts::add(): in a training that goes on nothing of a gradient is lost. What it remembers changes when a
/// step's collectives have all succeeded, which they do on all ranks, and if the mean is finite: otherwise a program
/// leaves the step out. Copies are one hook. The functions here are called between two steps. Complex parameters are
/// refused: backward() throws std::invalid_argument, in the first step.
class StatefulCommHook {
 public:
  class Memory;
  explicit StatefulCommHook(std::shared_ptr<Memory> memory);  ///< for what makes hooks

  HookResult operator()(GradBucket& bucket) const;  ///< reduces a bucket, as a CommHook
  /// What it remembers, copied, of these parameters, those of the module. Each rank has its own.
  CommHookState state_dict(const std::vector<at::Tensor>& parameters) const;
  /// Takes what state_dict() has returned, and forgets what there was: with undefined tensors all. The first tensor is
  /// the first parameter's, and so on, whatever their names are. Before the first step with it; the other ranks do the
  /// same. Throws std::invalid_argument, and changes nothing, if it does not fit the parameters or their strides.
  void load_state_dict(const CommHookState& state, const std::vector<at::Tensor>& parameters);

 private:
  std::shared_ptr<Memory> memory_;
};

/// Throws std::invalid_argument for what load_state_dict() would refuse.
void check_state_dict(const CommHookState& state, const std::vector<at::Tensor>& parameters);

/// How power_sgd_hook() compresses.
struct PowerSgdOptions {
  std::int64_t rank = 1;            ///< of the approximation of each matrix
  std::int64_t start_step = 1000;   ///< all_reduce_hook() before: early gradients are of full rank
  double smallest_compression = 2;  ///< matrices that would not get smaller by this factor go as they are
  bool error_feedback = true;       ///< what an approximation leaves out is added in the next step
  bool warm_start = true;           ///< each step begins with the last one's factors
  std::uint64_t seed = 0;           ///< of the first factors
};

/// Gradients of two dimensions and more as products of thin matrices (Vogels, Karimireddy and Jaggi, 2019), by one step
/// of a power iteration, whose factors are averaged. The others, biases for example, are averaged as they are. Buckets
/// overlap with the backward pass. Throws std::invalid_argument for a rank or a start step below 1 (libtorch makes the
/// buckets anew after the first step), and for a smallest compression that is below 0 or no number. With
/// skip_all_reduce_unused_params backward() throws it: a bucket's second half waits for the next bucket, which may not
/// come.
StatefulCommHook power_sgd_hook(const ProcessGroupOfHook& process_group, const PowerSgdOptions& options = {});

/// How top_k_hook() chooses.
struct TopKOptions {
  double fraction = 0.01;       ///< of each bucket's elements that are sent; at least one is
  std::int64_t start_step = 1;  ///< all_reduce_hook() before
  bool error_feedback = true;   ///< what is not sent adds up until it is large enough
};

/// Each rank sends its gradients' largest elements alone; the mean of what all have sent is the gradient (Stich and
/// others, 2018). All ranks add in the order of ranks and get the same bits. Throws std::invalid_argument for a fraction
/// outside of (0, 1] or a start step below 1.
StatefulCommHook top_k_hook(const ProcessGroupOfHook& process_group, const TopKOptions& options = {});

/// When local_sgd_hook() reduces.
struct LocalSgdOptions {
  std::int64_t start_step = 100;      ///< the mean over all ranks before: models diverge most at the start
  ProcessGroupOfHook part = nullptr;  ///< this rank's part of the group, which goes on to reduce; null: each rank alone
};

/// No reduction but inside `part`, from the start step on: for PeriodicAverager, which averages parameters. Throws
/// std::invalid_argument for a start step below 0.
CommHook local_sgd_hook(const ProcessGroupOfHook& process_group, const LocalSgdOptions& options = {});

/// When PeriodicAverager averages.
struct PeriodicAveragerOptions {
  std::int64_t period = 16;    ///< steps from one average to the next
  std::int64_t warm_up = 100;  ///< steps before the first; local_sgd_hook()'s start_step
};

/// The second half of local SGD (Stich, 2019): call average() after each optimizer step, and every `period` steps the
/// parameters become the mean over all ranks. The optimizer's state stays each rank's own. One thread; a rank's death is
/// PeerDied.
class PeriodicAverager {
 public:
  /// Throws std::invalid_argument for a period below 1 or a warm-up below 0.
  explicit PeriodicAverager(ProcessGroupOfHook process_group, const PeriodicAveragerOptions& options = {});
  /// Counts a step; returns whether it has averaged those parameters that require gradients. Frozen ones, and buffers,
  /// are left as they are: the mean of equal values need not have their bits. All ranks call it equally often, with the
  /// same parameters; where ranks have frozen others, an average throws std::invalid_argument on all, which names the
  /// first.
  bool average(const std::vector<at::Tensor>& parameters);

  std::int64_t steps() const { return steps_; }  ///< that it has counted, for a checkpoint
  /// For a training that goes on from one, the same on all ranks. Throws std::invalid_argument for a number below 0.
  void set_steps(std::int64_t steps);

 private:
  ProcessGroupOfHook process_group_;
  PeriodicAveragerOptions options_;
  std::int64_t steps_ = 0;
};

}  // namespace shoal
