// What a rank without a batch has to know to step as those do that have one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/workers/train/join.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace shoal {

/// What the ranks with a batch do next with a ZeroRedundancyOptimizer.
struct OptimizerCall {
  bool clips = false;  ///< otherwise they step
  double max_norm = 0, norm_type = 0;
};

/// On ranks with a batch: the first of them tells those without what it does, the options of all its groups, and the
/// gradients of their parameters as its user has left them. `shares`: each rank's parameters. `may_be_sharded`: whether a
/// gradient that this rank does not have may be its owner's alone, who keeps it then; otherwise its user has removed it.
/// Ranks without a batch call hear_call() meanwhile.
///
/// The call is a collective: where another rank is elsewhere after an exception, all are told. What follows goes from
/// rank to rank, and no other rank gets it.
void tell_call(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const JoinStep& step,
               const OptimizerCall& call, torch::optim::Optimizer& optimizer,
               const std::vector<std::vector<at::Tensor>>& shares, bool may_be_sharded);

/// On a rank without a batch: its optimizer gets the options, and its parameters the gradients. It keeps gradients that
/// the other rank does not have (sharded ones) or that are sparse.
OptimizerCall hear_call(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const JoinStep& step,
                        torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& share);

}  // namespace shoal
