// DistributedDataParallel: several ranks train a module at once, each on its share of the data.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/ddp/forward_result.h>
#include <shoal/internal/workers/train/ddp/gradient_reducer.h>
#include <shoal/workers/train/process_group.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace shoal {

namespace detail {

template <class T>
concept Holder = requires(T& holder) { holder.operator->(); };

/// A module's owner: the holder itself (`TORCH_MODULE(Net)` makes one), or a shared pointer.
template <class Module>
struct Owner {
  using type = std::shared_ptr<Module>;
};
template <Holder Module>
struct Owner<Module> {
  using type = Module;
};

}  // namespace detail

/// A module as one of several replicas, like torch.nn.parallel.DistributedDataParallel. `Module` is the module's class
/// or holder:
///
///   auto process_group = shoal::init_process_group(group, rank);
///   DistributedDataParallel<Net> ddp(net, process_group);
///   loss_of(ddp.forward(batch)).backward();      // gradients are the mean over all ranks now
///
/// All ranks construct it, and run the same number of forward and backward passes. One thread. GradientReducer says
/// what happens when a rank dies. The module is shared with the caller; optimizers take module.parameters() as usual.
/// Without gradients enabled, forward() is the module's own and no collective, so one rank may evaluate alone; with them it
/// is a pass of all ranks, which compare how many there were.
///
/// With find_unused_parameters, static_graph or delayed forward() may return tensors and aggregates, containers, tuples,
/// optionals, variants and owning pointers of them; anything else throws std::invalid_argument. It then returns copies of
/// the module's results.
///
/// Several forward passes may go before one backward pass of all their results. Of two backward passes after two forward
/// passes only the first one reduces, as in torch.
template <class Module>
class DistributedDataParallel {
 public:
  using Owner = typename detail::Owner<Module>::type;  ///< what keeps the module: torch's holder or a shared pointer

  /// With default options.
  DistributedDataParallel(Owner module, const c10::intrusive_ptr<c10d::ProcessGroup>& process_group)
      : DistributedDataParallel(DistributedDataParallelOptions{}, std::move(module), process_group) {}
  /// Copies rank 0's parameters and buffers to all ranks, which all call it. Throws std::invalid_argument if the
  /// modules or options differ.
  DistributedDataParallel(const DistributedDataParallelOptions& options, Owner module,
                          const c10::intrusive_ptr<c10d::ProcessGroup>& process_group)
      : module_(std::move(module)), reducer_(std::make_unique<GradientReducer>(options, *module_, process_group)) {}

  /// The module's forward(). The backward pass of what it returns reduces the gradients.
  template <class... Args>
  auto forward(Args&&... args) {
    reducer_->before_forward();
    if constexpr (std::is_void_v<decltype(module_->forward(std::forward<Args>(args)...))>) {
      module_->forward(std::forward<Args>(args)...);
      if (reducer_->wants_outputs()) GradientReducer::refuse_result(typeid(void));
      reducer_->after_forward({});
      return;
    } else {
      return forward_with_result(std::forward<Args>(args)...);
    }
  }
  /// forward()
  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  auto& module() { return *module_; }       ///< the module, shared with the caller
  auto* operator->() { return &*module_; }  ///< a member of the module

  /// While such an object lives, gradients stay local and add up. The first backward pass of a forward() after it
  /// reduces the sum. For accumulating gradients over several batches.
  class [[nodiscard]] NoSync {
   public:
    /// Made by no_sync().
    explicit NoSync(GradientReducer& reducer) : reducer_(reducer), before_(reducer.syncs()) {
      reducer_.set_syncs(false);
    }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync() { reducer_.set_syncs(before_); }

   private:
    GradientReducer& reducer_;
    bool before_;
  };
  NoSync no_sync() { return NoSync(*reducer_); }  ///< for as long as the result lives

  /// Gradients are reduced by this hook instead of by their mean: comm_hooks.h has some. Once, before the first
  /// forward(), and the same on all ranks; otherwise throws std::invalid_argument.
  void register_comm_hook(CommHook hook) { reducer_->register_comm_hook(std::move(hook)); }
  /// The number of the last step in which a hook was called, from 1; 0 before. comm_hooks.h's begin to leave something out
  /// at a step: a training that goes on from a checkpoint saves this number, and sets it before its first forward(), on all
  /// ranks. Throws std::invalid_argument for one below 0.
  std::int64_t comm_hook_step() const { return reducer_->comm_hook_step(); }
  void set_comm_hook_step(std::int64_t step) { reducer_->set_comm_hook_step(step); }  ///< see comm_hook_step()

  /// ZeRO, stage 2: from now on each rank keeps the gradients of those parameters alone that it owns; after a backward
  /// pass the others have none. The buckets have memory while they are filled and reduced, one or two at a time.
  ///
  ///   shoal::ZeroRedundancyOptimizer optimizer(net->parameters(), make, process_group);
  ///   ddp.shard_gradients(optimizer.owners());
  ///
  /// The numbers are those without it. Gradients add up over passes as without it, also under no_sync(), where each
  /// rank has all of them. Clip them by ZeroRedundancyOptimizer::clip_grad_norm_(). Sparse and delayed gradients stay whole.
  /// With find_unused_parameters all buckets have memory in the backward pass.
  ///
  /// Collective, once, before the first forward(). Throws std::invalid_argument after that, if there is a communication
  /// hook, without gradient_as_bucket_view, for parameters that are not on the CPU or have no owner among the ranks, and
  /// if the ranks differ in the owners.
  void shard_gradients(const GradientOwners& owners) { reducer_->shard_gradients(owners); }

  Joinable& joinable() { return *reducer_; }  ///< for a Join, in which ranks may have different numbers of batches

 private:
  template <class... Args>
  auto forward_with_result(Args&&... args) {
    auto result = module_->forward(std::forward<Args>(args)...);
    std::vector<at::Tensor*> outputs;
    if (reducer_->wants_outputs()) {
      if constexpr (detail::can_be_searched<decltype(result)>())
        detail::for_each_result_tensor(result, [&](at::Tensor& tensor) { outputs.push_back(&tensor); });
      else
        GradientReducer::refuse_result(typeid(result));
    }
    reducer_->after_forward(outputs);
    return result;
  }

  Owner module_;
  std::unique_ptr<GradientReducer> reducer_;
};

}  // namespace shoal
