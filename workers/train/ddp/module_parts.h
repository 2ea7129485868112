// What of a module DistributedDataParallel takes care of, and how.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/ddp/ddp_options.h>
#include <shoal/internal/workers/train/ddp/module_check.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace shoal {

struct ModuleParts {
  NamedTensorList parameters;       ///< trained ones that the Reducer reduces; tied ones once
  std::vector<bool> expect_sparse;  ///< for each of `parameters`
  NamedTensorList delayed;          ///< trained ones that are reduced at the end
  NamedTensorList frozen;           ///< parameters that require no gradient
  NamedTensorList all;              ///< everything that a replica has to start with: also what is not trained
  std::vector<std::string> uses;    ///< what is done with the gradients of each of `all`, the same on all ranks
  std::vector<at::Tensor> buffers;  ///< defined ones
};

/// Collective, and the same on all ranks, which it compares: buckets of equal sizes would mix other gradients. Throws
/// std::invalid_argument on every rank where one rank's module is another one, or its options cannot be: there with what is
/// wrong (a name that the module does not have, a size that is none), on the others with the rank and that.
ModuleParts parts_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                               const torch::nn::Module& module, const DistributedDataParallelOptions& options);

/// Throws std::invalid_argument for a parameter that has been unfrozen since, whose gradient nobody would reduce, and for one
/// that has been frozen, unless gradients may be missing.
void check_what_is_trained(const ModuleParts& parts, bool may_be_missing);

/// While it lives, all of `parameters` require gradients, as when they were counted among the trained ones: a frozen one has no
/// node in the graph to which a hook could be added.
class TrainedScope {
 public:
  explicit TrainedScope(const NamedTensorList& parameters);
  TrainedScope(const TrainedScope&) = delete;
  TrainedScope& operator=(const TrainedScope&) = delete;
  ~TrainedScope();

 private:
  std::vector<at::Tensor> frozen_;
};

}  // namespace shoal
