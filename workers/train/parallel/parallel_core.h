// The parent's side of a DataParallel.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <shoal/internal/workers/train/parallel/parallel_messages.h>
#include <shoal/runtime/process.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace shoal::detail {

/// Divides inputs, gives parts to workers, puts outputs together, and adds up gradients. A DataParallel owns it, and the
/// graphs of passes that nobody has gone back through yet. One thread calls forward(); autograd's threads backward().
class ParallelCore : public std::enable_shared_from_this<ParallelCore> {
 public:
  using StartWorker = std::function<Process<void>(int index, const ParallelEnds& ends)>;

  /// `workers`: 0 for one a CPU.
  ParallelCore(torch::nn::Module& module, int workers, std::int64_t dim, const StartWorker& start);
  ParallelCore(const ParallelCore&) = delete;
  ParallelCore& operator=(const ParallelCore&) = delete;
  ~ParallelCore();

  /// Outputs that go back through the workers.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs);
  std::vector<int> pids() const;

  /// One forward pass over the workers, as the graph keeps it.
  struct Pass {
    std::uint64_t ticket = 0;
    std::size_t parts = 0, inputs = 0;
    std::vector<std::vector<std::int64_t>> sizes;        // [output][part]; none for outputs of no dimension
    std::vector<std::vector<std::int64_t>> input_sizes;  // [input][part], the same
    bool spent = false;                                  // nobody can go back through it any more
    bool freed = false;                                  // the workers have been told so
  };
  std::vector<at::Tensor> run_forward(const std::vector<at::Tensor>& inputs, bool keeps_graph, Pass& pass);
  /// The gradients of inputs and module_leaves(): what all parts together have.
  std::vector<at::Tensor> run_backward(Pass& pass, const std::vector<at::Tensor>& gradients, bool keeps_graph);
  /// Says that nobody will go back through this pass. From a destructor, on any thread.
  void forget(const Pass& pass) noexcept;

 private:
  struct Worker {
    Process<void> process;
    Connection<ParallelTask> tasks;
    Connection<ParallelAnswer> answers;
    std::vector<std::uint64_t> forgotten;  // under forgotten_mutex_
  };

  /// Gives each of the first `count` workers task_for(index), and returns their answers. All answers that are due are
  /// awaited before anything is thrown, so that the next call does not take them for its own; where that cannot be, all
  /// later calls throw the same. `sent` says how many tasks went out, also if it throws.
  template <class TaskFor>
  std::vector<std::vector<at::Tensor>> ask(std::size_t count, std::size_t& sent, TaskFor&& task_for);
  std::vector<std::vector<at::Tensor>> receive(std::size_t count);
  [[noreturn]] void worker_gone(std::size_t index);
  /// Throws std::logic_error if a parameter or buffer is not any more the memory that the workers have.
  void check_shared() const;

  using Place = std::pair<const void*, c10::ScalarType>;

  torch::nn::Module& module_;
  const std::int64_t dim_;
  std::vector<std::pair<std::string, Place>> shared_;  // the module's tensors, by name, as the workers have them
  std::mutex mutex_;                                   // one pass at a time
  std::mutex forgotten_mutex_;
  std::uint64_t next_ticket_ = 1;
  std::exception_ptr broken_;
  std::vector<Worker> workers_;
};

}  // namespace shoal::detail
