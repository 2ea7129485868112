#include <shoal/internal/workers/train/parallel/parallel_worker.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/runtime/crash/traced_call.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/tensors/module_state.h>
#include <shoal/tensors/share.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cstring>
#include <optional>
#include <stdexcept>

namespace shoal::detail {
namespace {

/// Computes as the calling thread does, while it lives. No copy of a parameter stays: the next pass has other values.
class SameAutocast {
 public:
  explicit SameAutocast(std::optional<c10::ScalarType> type) : enabled_(type.has_value()) {
    if (!enabled_) return;
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(at::kCPU, *type);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  SameAutocast(const SameAutocast&) = delete;
  SameAutocast& operator=(const SameAutocast&) = delete;
  ~SameAutocast() {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }

 private:
  bool enabled_;
};

/// Not whether they are equal: what is no number is equal to nothing.
bool has_bytes_of(const at::Tensor& own, const at::Tensor& other) {
  if (!own.is_contiguous() || !other.is_contiguous()) return at::equal(own, other);
  return own.nbytes() == other.nbytes() &&
         (own.nbytes() == 0 || std::memcmp(own.const_data_ptr(), other.const_data_ptr(), own.nbytes()) == 0);
}

}  // namespace

void ParallelWorker::serve() {
  for (;;) {
    std::optional<ParallelTask> task;
    try {
      task = ends_.tasks.recv();
    } catch (const EndOfFile&) {
      return;  // the DataParallel has gone
    }
    SHOAL_KILL_POINT("data_parallel.worker.took");
    ParallelAnswer answer;
    try {
      traced_call([&] { answer.tensors = std::visit([&](const auto& one) { return run(one); }, *task); });
    } catch (...) {
      answer.raised = take_current_exception();
    }
    SHOAL_KILL_POINT("data_parallel.worker.computed");
    if (!send(answer)) return;
  }
}

bool ParallelWorker::send(const ParallelAnswer& answer) {
  ParallelAnswer instead;
  try {
    traced_call([&] { ends_.answers.send(answer); });
    return true;
  } catch (const BrokenPipe&) {
    return false;
  } catch (...) {
    // A tensor that crosses nowhere, or there is no room for it: nothing has gone out, and the parent waits.
    instead.raised = take_current_exception();
  }
  try {
    ends_.answers.send(instead);
    return true;
  } catch (const BrokenPipe&) {
    return false;
  }
}

void ParallelWorker::use_buffers(const ParallelForward& task) {
  if (task.buffers.empty()) return;
  std::vector<at::Tensor> own = module_.buffers();
  if (!own_buffers_) unshare(own);
  own_buffers_ = true;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!own[i].defined()) continue;
    // A graph that has saved a buffer goes on as long as the buffer stays what it was.
    if (!has_bytes_of(own[i], task.buffers[i])) own[i].copy_(task.buffers[i]);
  }
}

std::vector<at::Tensor> ParallelWorker::run(const ParallelForward& task) {
  for (const std::uint64_t ticket : task.forgotten) passes_.erase(ticket);
  module_codec::set_training_flags(module_, task.training);
  std::vector<at::Tensor> leaves = module_leaves(module_);
  // What forward() has made of a buffer may be no leaf: it stays what it is.
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].is_leaf()) leaves[i].set_requires_grad(task.requires_grad[i]);
  use_buffers(task);
  if (task.seed >= 0) torch::manual_seed(std::uint64_t(task.seed));

  const at::AutoGradMode mode(task.keeps_graph);
  Pass pass{.outputs = {}, .inputs = task.inputs};
  for (std::size_t i = 0; i < pass.inputs.size(); ++i)
    if (task.input_requires_grad[i]) pass.inputs[i].set_requires_grad(true);
  {
    const SameAutocast autocast(task.autocast);
    pass.outputs = call_forward_(module_, pass.inputs);
  }
  std::vector<at::Tensor> answer;
  answer.reserve(pass.outputs.size());
  for (const at::Tensor& output : pass.outputs) {
    if (!output.defined()) throw std::logic_error("forward() returned an undefined tensor");
    answer.push_back(output.detach());
  }
  if (task.keeps_graph) passes_.insert_or_assign(task.ticket, std::move(pass));
  return answer;
}

std::vector<at::Tensor> ParallelWorker::run(const ParallelBackward& task) {
  const auto found = passes_.find(task.ticket);
  if (found == passes_.end()) throw std::logic_error("a backward pass without its forward pass");
  // Out of the table before anything can fail: a graph that is not kept goes in any case.
  const Pass pass = task.keeps_graph ? found->second : std::move(found->second);
  if (!task.keeps_graph) passes_.erase(found);
  std::vector<at::Tensor> roots, root_gradients, leaves;
  for (std::size_t i = 0; i < pass.outputs.size(); ++i)
    if (pass.outputs[i].requires_grad()) {
      roots.push_back(pass.outputs[i]);
      root_gradients.push_back(task.gradients[i]);
    }
  const std::vector<at::Tensor> of_module = module_leaves(module_);
  std::vector<std::size_t> places;
  std::vector<at::Tensor> answer(pass.inputs.size() + of_module.size());
  SeenTensors
      seen;  // a tied parameter's gradient is given for its first name alone: autograd adds up those of all names
  for (std::size_t i = 0; i < answer.size(); ++i) {
    const at::Tensor& leaf = i < pass.inputs.size() ? pass.inputs[i] : of_module[i - pass.inputs.size()];
    if (!leaf.requires_grad() || !leaf.is_leaf() || (i >= pass.inputs.size() && !seen.is_new(leaf))) continue;
    leaves.push_back(leaf);
    places.push_back(i);
  }
  if (!roots.empty() && !leaves.empty()) {
    // Not in a SharedMemoryScope, where all that this pass needs for a moment would lie in the heap, too. The answer's encoding
    // moves the gradients there.
    auto gradients = torch::autograd::grad(roots, leaves, root_gradients, task.keeps_graph, /*create_graph=*/false,
                                           /*allow_unused=*/true);
    for (std::size_t i = 0; i < gradients.size(); ++i) answer[places[i]] = gradients[i];
  }
  return answer;
}

}  // namespace shoal::detail
