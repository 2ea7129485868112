// FloatMasters: float copies of half-type parameters, for the optimizer.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/workers/train/join.h>

#include <memory>
#include <vector>

namespace shoal {

/// Float copies of a module's bfloat16 or float16 parameters. The module computes in the half type, and
/// DistributedDataParallel reduces its gradients in it (added in float, rounded once); the optimizer steps on the copies,
/// in which small steps are not lost:
///
///   net->to(at::kBFloat16);
///   shoal::DistributedDataParallel<Net> ddp(net, process_group);     // before the copies are made
///   shoal::FloatMasters masters(net->parameters());
///   torch::optim::Adam optimizer(masters.parameters(), 1e-3);
///   loss.backward();
///   masters.take_gradients();
///   optimizer.step();
///   masters.give_parameters();
///
/// A checkpoint has the copies beside the module, since they know more digits:
///
///   parts.add("model", net);
///   parts.add("masters", masters, *net);
///   parts.add("optimizer", optimizer, masters, *net);
///
/// A ZeroRedundancyOptimizer over masters.parameters() knows whose copies they are: owners() names the module's
/// parameters, for shard_gradients(), and in a Join ranks without a batch step on the copies, too. With another
/// optimizer give the Join the copies, so that all ranks have the same at its end:
///
///   shoal::Join join({ddp.joinable(), masters.joinable(process_group)});
///
/// Whoever changes the parameters by other means (weights from elsewhere, the end of a Join without the copies) calls
/// take_parameters(); otherwise the next give_parameters() undoes it. Not collective but in a Join. One thread.
class FloatMasters {
 public:
  /// Parameters of other types, float for example, are taken themselves: they are no copies. A tied parameter, which
  /// Module::parameters() names several times, has one. Throws std::invalid_argument for complex ones of a half type.
  explicit FloatMasters(const std::vector<at::Tensor>& parameters);

  const std::vector<at::Tensor>& parameters() const { return masters_; }            ///< for the optimizer
  const std::vector<at::Tensor>& module_parameters() const { return parameters_; }  ///< whose copies they are
  /// The copies' gradients are the parameters', which are none afterwards; where none is, none. Of several backward passes
  /// once, behind the last: it takes the place of what was taken before.
  void take_gradients();
  void give_parameters();  ///< rounds the copies to the parameters
  void take_parameters();  ///< the copies become what the parameters are
  /// For a Join of that group: when it ends, all ranks get the copies of one that did the last step. The same one for
  /// each call; it lives as long as these masters do, which are not assigned to meanwhile.
  Joinable& joinable(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);

 private:
  class InJoin;
  std::vector<at::Tensor> parameters_, masters_;
  std::vector<std::shared_ptr<InJoin>> in_joins_;  // by group
};

}  // namespace shoal
