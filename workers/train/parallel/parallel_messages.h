// What a DataParallel and its workers send to each other.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <shoal/internal/runtime/crash/raised.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/pipe.h>
#include <shoal/tensors/codec.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace torch::nn {
class Module;
}

namespace shoal::detail {

/// A module's tensors that may require gradients, in the order that both sides know them by: parameters, then buffers.
std::vector<at::Tensor> module_leaves(const torch::nn::Module& module);

/// A forward pass of one part of a batch.
struct ParallelForward {
  std::uint64_t ticket;             // by which the backward pass names this one
  bool keeps_graph;                 // whether there may be a backward pass
  std::int64_t seed;                // of random numbers; negative: nobody trains
  std::vector<bool> training;       // of each submodule
  std::vector<bool> requires_grad;  // of each of module_leaves()
  std::vector<bool> input_requires_grad;
  std::optional<c10::ScalarType> autocast;  // to what the calling thread casts; nothing: it does not
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> buffers;       // that the worker copies into its own; empty: it uses the shared ones
  std::vector<std::uint64_t> forgotten;  // tickets of passes that nobody goes back through any more
};

/// The backward pass of an earlier forward pass.
struct ParallelBackward {
  std::uint64_t ticket;
  bool keeps_graph;
  std::vector<at::Tensor> gradients;  // of the outputs
};

using ParallelTask = std::variant<ParallelForward, ParallelBackward>;

/// Outputs; or gradients of the inputs and then of module_leaves(), undefined where there is none.
struct ParallelAnswer {
  std::optional<RaisedException> raised;
  std::vector<at::Tensor> tensors;
};

/// A worker's ends.
struct ParallelEnds {
  Connection<ParallelTask> tasks;
  Connection<ParallelAnswer> answers;
};

}  // namespace shoal::detail
