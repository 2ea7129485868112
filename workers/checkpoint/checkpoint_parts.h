// CheckpointParts: what a checkpoint is made of.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/checkpoint/parts/part.h>
#include <shoal/internal/workers/checkpoint/parts/value_part.h>
#include <shoal/ipc/codec.h>
#include <shoal/workers/data/loader_state.h>

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace shoal {

class DiLoCo;
class FloatMasters;
class StatefulCommHook;
class ZeroRedundancyOptimizer;

/// How what a part is made of differs from rank to rank.
enum class OnRanks {
  equal,  ///< all ranks have the same values, as DistributedDataParallel keeps them: each writes a part of them
  own,    ///< each rank has values of its own, writes all of them, and loads its own again
};

/// What a checkpoint is made of, under names: one list for saving and loading. Copyable; it refers to what was added,
/// which has to outlive it. The names' parts in a file are "model/encoder.0.weight", "optimizer/encoder.0.weight/exp_avg",
/// "epoch".
///
///   shoal::CheckpointParts parts;
///   parts.add("model", net);
///   parts.add("optimizer", optimizer, *net);
///   parts.add("loader", loader);
///   parts.add("progress", progress);   // any encodable value
///   parts.add_random_state("random");
///
/// With another number of ranks than wrote it, what is `equal` and a ZeroRedundancyOptimizer's state is found by its
/// names. Of what each rank has as its own, rank r takes that of rank r modulo the ranks that wrote it.
class CheckpointParts {
 public:
  /// Parameters and buffers by their names in the state_dict; of `equal` modules rank 0 writes the buffers. Loading
  /// copies into the module's own tensors; saving refuses expanded ones, into which nothing can be copied.
  void add(const std::string& name, torch::nn::Module& module, OnRanks on_ranks = OnRanks::equal);
  /// A torch holder, or a shared pointer to a module.
  template <class Holder>
    requires requires(Holder& holder) { static_cast<torch::nn::Module&>(*holder); }
  void add(const std::string& name, Holder& holder, OnRanks on_ranks = OnRanks::equal) {
    add(name, static_cast<torch::nn::Module&>(*holder), on_ranks);
  }

  /// The state and options (learning rates) of SGD, Adam, AdamW, RMSprop and Adagrad under the names that `module` has
  /// for their parameters; of other optimizers what torch::save writes. Throws std::invalid_argument for parameters
  /// that the module does not have.
  void add(const std::string& name, torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
           OnRanks on_ranks = OnRanks::equal);
  /// Under their numbers in the optimizer.
  void add(const std::string& name, torch::optim::Optimizer& optimizer, OnRanks on_ranks = OnRanks::equal);
  /// Each rank writes its part of the state; any number of ranks load it again, each the part that it then has.
  void add(const std::string& name, ZeroRedundancyOptimizer& optimizer, const torch::nn::Module& module);

  /// The float copies of a module's parameters, by its names. Those that are no copies are saved with the module.
  void add(const std::string& name, FloatMasters& masters, const torch::nn::Module& module);
  /// An optimizer of these copies, under the names that `module` has for what they are copies of.
  void add(const std::string& name, torch::optim::Optimizer& optimizer, const FloatMasters& masters,
           const torch::nn::Module& module, OnRanks on_ranks = OnRanks::equal);
  /// Likewise: each rank writes its part of the state.
  void add(const std::string& name, ZeroRedundancyOptimizer& optimizer, const FloatMasters& masters,
           const torch::nn::Module& module);

  /// What DiLoCo keeps, by `module`'s names: the outer optimizer as `name`, the parameters' values after the last outer step
  /// as `name.start`, the inner steps since as `name.inner_steps`. Between two outer steps the module and the inner
  /// optimizer are each rank's own.
  void add(const std::string& name, DiLoCo& diloco, const torch::nn::Module& module);
  /// The same of a DiLoCo of a module's float copies.
  void add(const std::string& name, DiLoCo& diloco, const FloatMasters& masters, const torch::nn::Module& module);

  /// What a communication hook remembers of the module's parameters: each rank's own, under the parameters' numbers.
  /// With another number of ranks what all together have left out stays the same. DistributedDataParallel::
  /// comm_hook_step() goes beside it.
  void add(const std::string& name, const StatefulCommHook& hook, const torch::nn::Module& module);

  /// One tensor. Loading copies into it.
  void add(const std::string& name, at::Tensor& tensor, OnRanks on_ranks = OnRanks::equal);

  /// A DataLoader's place in its data, which includes its sampler's. A place in other data is a CheckpointError.
  template <class Loader>
    requires requires(Loader& loader, const LoaderState& state) {
      { loader.state_dict() } -> std::convertible_to<LoaderState>;
      loader.load_state_dict(state);
    }
  void add(const std::string& name, Loader& loader) {
    add(
        name, [&loader]() -> LoaderState { return loader.state_dict(); },
        [&loader](const LoaderState& state) { loader.load_state_dict(state); },
        [&loader](const LoaderState& state) {
          if constexpr (requires { loader.check_state_dict(state); }) loader.check_state_dict(state);
        });
  }

  /// Any encodable value, an aggregate with tensors for example: a scheduler's numbers, counts, histories. A value of
  /// another type than was saved is a CheckpointError. Values are each rank's own.
  template <Encodable T>
    requires(!std::is_const_v<T> && !requires(T& holder) { static_cast<torch::nn::Module&>(*holder); })
  void add(const std::string& name, T& value) {
    add(name, [&value]() -> const T& { return value; }, [&value](T loaded) { value = std::move(loaded); });
  }
  /// An encodable value that two functions read and write: get() returns it, set(value) takes it.
  template <std::invocable Get, class Set>
    requires Encodable<std::remove_cvref_t<std::invoke_result_t<Get&>>> &&
             std::invocable<Set&, std::remove_cvref_t<std::invoke_result_t<Get&>>>
  void add(const std::string& name, Get get, Set set) {
    using T = std::remove_cvref_t<std::invoke_result_t<Get&>>;
    add(name, std::move(get), std::move(set), [](const T&) {});
  }
  /// The same, where set() refuses some values: check(value) throws a std::exception for these. It is called before
  /// anything is changed, and what it throws becomes a CheckpointError.
  template <std::invocable Get, class Set, class Check>
    requires Encodable<std::remove_cvref_t<std::invoke_result_t<Get&>>> &&
             std::invocable<Set&, std::remove_cvref_t<std::invoke_result_t<Get&>>> &&
             std::invocable<Check&, const std::remove_cvref_t<std::invoke_result_t<Get&>>&>
  void add(const std::string& name, Get get, Set set, Check check) {
    using T = std::remove_cvref_t<std::invoke_result_t<Get&>>;
    add(detail::make_value_part<T>(name, std::move(get), std::move(set), std::move(check)));
  }

  /// The state of libtorch's random generator of this process's CPU. With another number of ranks it is left as it is: a
  /// state for two ranks would give both the same numbers.
  void add_random_state(const std::string& name);

  /// For save and load.
  const std::vector<std::shared_ptr<detail::CheckpointPart>>& parts() const { return parts_; }

 private:
  void add(std::shared_ptr<detail::CheckpointPart> part);
  void add_diloco(const std::string& name, DiLoCo& diloco, const std::vector<std::string>& names);

  std::vector<std::shared_ptr<detail::CheckpointPart>> parts_;
};

}  // namespace shoal
