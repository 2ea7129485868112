// DataParallel: one training loop, whose module several worker processes compute on parts of each batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/parallel/parallel_core.h>
#include <shoal/internal/workers/train/parallel/parallel_worker.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/module_state.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace shoal {

/// How a DataParallel starts its workers and divides its inputs.
struct DataParallelOptions {
  int processes = 0;                   ///< 0: one for each CPU that affinity and cgroup leave this process
  std::int64_t dim = 0;                ///< along which inputs are divided and outputs put together
  int num_threads = 1;                 ///< that each worker computes with
  std::string name = "data parallel";  ///< of workers, with their number behind
  std::chrono::nanoseconds grace_period = std::chrono::milliseconds(500);  ///< as in ProcessOptions
};

namespace detail {

/// A module's forward() with as many tensors as there are, of those that it takes.
template <class Module, std::size_t... I>
std::vector<at::Tensor> call_with(Module& module, const std::vector<at::Tensor>& inputs, std::index_sequence<I...>) {
  if constexpr (requires { module.forward(inputs[I]...); }) {
    auto result = module.forward(inputs[I]...);
    using Result = decltype(result);
    if constexpr (std::same_as<Result, at::Tensor>)
      return {std::move(result)};
    else if constexpr (std::same_as<Result, std::vector<at::Tensor>>)
      return result;
    else
      return std::apply([](auto&&... parts) { return std::vector<at::Tensor>{std::move(parts)...}; },
                        std::move(result));
  } else {
    throw std::logic_error("forward() takes another number of tensors");
  }
}

inline constexpr std::size_t kMostInputs = 8;

template <class Module>
std::vector<at::Tensor> call_forward(torch::nn::Module& module, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  [&]<std::size_t... N>(std::index_sequence<N...>) {
    ((inputs.size() == N + 1
          ? void(outputs = call_with(static_cast<Module&>(module), inputs, std::make_index_sequence<N + 1>()))
          : void()),
     ...);
  }(std::make_index_sequence<kMostInputs>());
  return outputs;
}

template <class Net>
void serve_data_parallel(Net module, const ParallelEnds& ends) {
  ParallelWorker(*module, ends, call_forward<typename Net::ContainedType>).serve();
}

template <class Result>
Result from_outputs(std::vector<at::Tensor>&& outputs) {
  if constexpr (std::same_as<Result, at::Tensor>) {
    return std::move(outputs[0]);
  } else if constexpr (std::same_as<Result, std::vector<at::Tensor>>) {
    return std::move(outputs);
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Result{std::move(outputs[I])...};
    }(std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

}  // namespace detail

/// Computes a module by worker processes, as torch.nn.DataParallel does by devices: each takes a part of the batch. Net
/// is a holder of TORCH_MODULE that crosses between processes (tensors/module_state.h). The loop, the loss and the
/// optimizer stay in this process:
///
///   shoal::DataParallel<Net> parallel(net, {.processes = 4});
///   torch::optim::SGD optimizer(net->parameters(), 0.1);
///   for (auto& batch : loader) {
///     optimizer.zero_grad();
///     torch::mse_loss(parallel(batch.data), batch.target).backward();
///     optimizer.step();
///   }
///
/// * The parameters are there once: the workers read this process's, in shared memory. Nothing is replicated or
///   broadcast, and a change counts from the next forward() on.
/// * Part 0 of the batch goes to worker 0, part 1 to worker 1 and so on, as equal in size as at::chunk makes them. Each
///   worker leaves its gradients in shared memory; their sum is taken as ((0 + 1) + 2) + ... So with the same number of
///   workers the bits are the same in every run.
/// * Where a submodule is training, each worker's random numbers follow from this process's generator, and buffers
///   (batch norm) are those of worker 0; the other workers compute with copies, as with torch. A buffer that requires a
///   gradient gets that of all parts.
/// * What a worker throws, or cannot send to this process, comes out of forward() or backward() as ProcessRaised; the
///   workers go on. If a worker dies, that call and every later one throw what the worker's end was: ProcessExited or
///   ProcessRaised, with its name. Make a new DataParallel then.
/// * Workers cast as the calling thread does (torch.autocast). Whatever gives the module other memory or types (to(),
///   set_data()) comes before: afterwards forward() throws std::logic_error.
///
/// One thread. Owns the workers: they end with it. Second derivatives do not go through it.
template <module_codec::ModuleHolder Net>
class DataParallel {
 public:
  /// Moves the module into shared memory and starts the workers. Throws std::invalid_argument for a module that is not on
  /// the CPU: of several devices torch::nn::parallel::data_parallel makes use. SystemError, OutOfSharedMemory.
  explicit DataParallel(Net module, const DataParallelOptions& options = {})
      : module_(std::move(module)),
        core_(std::make_shared<detail::ParallelCore>(
            *module_, options.processes, options.dim, [this, &options](int index, const detail::ParallelEnds& ends) {
              Process<void> worker({.name = options.name + " " + std::to_string(index),
                                    .grace_period = options.grace_period,
                                    .num_threads = options.num_threads},
                                   detail::serve_data_parallel<Net>, module_, ends);
              worker.start();
              return worker;
            })) {}
  DataParallel(DataParallel&&) = default;
  DataParallel& operator=(DataParallel&&) = default;

  /// The module's forward() of one to eight tensors, which are divided along the dimension; those of no dimension go to
  /// all workers. Returns what the module does: a tensor, a vector or tuple of tensors. Results of no dimension (a loss)
  /// become one with an element for each part. Throws std::invalid_argument for tensors that are not equally long.
  template <std::same_as<at::Tensor>... Inputs>
  auto forward(const Inputs&... inputs) {
    using Result = decltype(module_->forward(inputs...));
    static_assert(sizeof...(Inputs) >= 1 && sizeof...(Inputs) <= detail::kMostInputs,
                  "shoal: DataParallel divides one to eight tensors");
    return detail::from_outputs<Result>(core_->forward({inputs...}));
  }
  /// forward()
  template <std::same_as<at::Tensor>... Inputs>
  auto operator()(const Inputs&... inputs) {
    return forward(inputs...);
  }

  Net& module() { return module_; }                        ///< the module, shared with the caller
  auto* operator->() { return module_.get(); }             ///< a member of the module
  std::vector<int> pids() const { return core_->pids(); }  ///< of the workers, in order

 private:
  Net module_;
  std::shared_ptr<detail::ParallelCore> core_;
};

}  // namespace shoal
