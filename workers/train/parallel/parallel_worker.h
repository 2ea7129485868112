// A worker of a DataParallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/parallel/parallel_messages.h>

#include <cstdint>
#include <map>
#include <vector>

namespace torch::nn {
class Module;
}

namespace shoal::detail {

/// Does forward and backward passes until the DataParallel goes. One thread; in the worker's process. The parameters are
/// the parent's memory.
class ParallelWorker {
 public:
  using CallForward = std::vector<at::Tensor> (*)(torch::nn::Module& module, const std::vector<at::Tensor>& inputs);

  ParallelWorker(torch::nn::Module& module, const ParallelEnds& ends, CallForward call_forward)
      : module_(module), ends_(ends), call_forward_(call_forward) {}

  void serve();

 private:
  /// What a backward pass needs of a forward pass.
  struct Pass {
    std::vector<at::Tensor> outputs, inputs;
  };

  std::vector<at::Tensor> run(const ParallelForward& task);
  std::vector<at::Tensor> run(const ParallelBackward& task);
  void use_buffers(const ParallelForward& task);
  /// Sends the answer; if it cannot be sent, what was the matter. False: the DataParallel has gone.
  bool send(const ParallelAnswer& answer);

  torch::nn::Module& module_;
  const ParallelEnds& ends_;
  CallForward call_forward_;
  bool own_buffers_ = false;
  std::map<std::uint64_t, Pass> passes_;
};

}  // namespace shoal::detail
