#include <shoal/internal/workers/train/parallel/parallel_core.h>

#include <ATen/WrapDimUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/internal/workers/train/parallel/parallel_function.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/module_state.h>
#include <shoal/tensors/share.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

namespace shoal::detail {
namespace {

void check_module(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters())
    if (item.value().defined() && !item.value().device().is_cpu())
      throw std::invalid_argument(
          fmt::format("DataParallel: parameter {} is on {}: workers compute on the CPU; for several devices there is "
                      "torch::nn::parallel::data_parallel",
                      item.key(), item.value().device().str()));
}

using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named named_tensors(const torch::nn::Module& module) {
  Named all;
  for (const auto& items : {module.named_parameters(), module.named_buffers()})
    for (const auto& item : items)
      if (item.value().defined()) all.emplace_back(item.key(), item.value());
  return all;
}

/// By which a tensor's memory is known.
std::pair<const void*, c10::ScalarType> place_of(const at::Tensor& tensor) {
  return {tensor.has_storage() ? tensor.const_data_ptr() : nullptr, tensor.scalar_type()};
}

/// A worker's end, as it is, with what is to be done.
template <class End>
class WorkerGone final : public End {
 public:
  explicit WorkerGone(const End& end)
      : End(end),
        text_(std::make_shared<std::string>(
            fmt::format("{}; this DataParallel computes no more: make a new one", end.what()))) {}
  const char* what() const noexcept override { return text_->c_str(); }

 private:
  std::shared_ptr<const std::string> text_;  // copies of an exception throw nothing
};

/// The same elements in shared memory. A part of a tensor that is there already is no copy.
at::Tensor in_heap(const at::Tensor& tensor) {
  if (is_shared(tensor)) return tensor.detach();
  at::Tensor copy = empty_shared(tensor.sizes(), tensor.options().requires_grad(false));
  copy.copy_(tensor.detach());
  return copy;
}

/// Each tensor's parts, [part][tensor]; `sizes`: [tensor][part] along the dimension, none where a tensor has none and
/// goes to all.
std::vector<std::vector<at::Tensor>> divide(const std::vector<at::Tensor>& tensors, std::int64_t dim, std::size_t most,
                                            std::vector<std::vector<std::int64_t>>& sizes) {
  std::optional<std::int64_t> length;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.device().is_cpu() || tensor.layout() != c10::kStrided)
      throw std::invalid_argument("DataParallel: inputs are strided tensors on the CPU");
    if (tensor.dim() == 0) continue;
    if (length && *length != tensor.size(dim))
      throw std::invalid_argument(
          fmt::format("DataParallel: inputs of {} and of {} along dimension {}", *length, tensor.size(dim), dim));
    length = tensor.size(dim);
  }
  if (!length) throw std::invalid_argument("DataParallel: no input has a dimension to divide");
  std::vector<std::vector<at::Tensor>> parts;
  sizes.assign(tensors.size(), {});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].dim() == 0) continue;
    const std::vector<at::Tensor> chunks = tensors[i].detach().chunk(std::int64_t(most), dim);
    parts.resize(chunks.size());
    for (std::size_t part = 0; part < chunks.size(); ++part) {
      parts[part].resize(tensors.size());
      parts[part][i] = in_heap(chunks[part]);
      sizes[i].push_back(chunks[part].size(dim));
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].dim() == 0)
      for (auto& part : parts) part[i] = in_heap(tensors[i]);
  return parts;
}

/// (0 + 1) + 2 ..., of those that are there.
at::Tensor sum_in_order(const std::vector<std::vector<at::Tensor>>& answers, std::size_t place) {
  at::Tensor sum;
  bool own = false;
  for (const auto& answer : answers) {
    const at::Tensor& gradient = answer[place];
    if (!gradient.defined()) continue;
    if (!sum.defined()) {
      sum = gradient;
    } else if (!own) {
      // Not in place: one worker's gradients of several parameters may be one tensor.
      sum = sum.add(gradient);
      own = true;
    } else {
      sum.add_(gradient);
    }
  }
  return sum.defined() && !own ? sum.clone() : sum;
}

/// A divided input's gradient: zeros where a part did not use it; undefined if none did. `sizes`: of the parts.
at::Tensor put_together(const std::vector<std::vector<at::Tensor>>& answers, std::size_t place,
                        const std::vector<std::int64_t>& sizes, std::int64_t dim) {
  const auto used = std::ranges::find_if(answers, [&](const auto& answer) { return answer[place].defined(); });
  if (used == answers.end()) return {};
  const at::Tensor& like = (*used)[place];
  std::vector<at::Tensor> parts;
  for (std::size_t part = 0; part < answers.size(); ++part) {
    parts.push_back(answers[part][place]);
    if (parts.back().defined()) continue;
    std::vector<std::int64_t> shape = like.sizes().vec();
    shape[std::size_t(at::maybe_wrap_dim(dim, like.dim()))] = sizes[part];
    parts.back() = at::zeros(shape, like.options());
  }
  return at::cat(parts, dim);
}

}  // namespace

ParallelCore::ParallelCore(torch::nn::Module& module, int workers, std::int64_t dim, const StartWorker& start)
    : module_(module), dim_(dim) {
  if (workers < 0)
    throw std::invalid_argument(fmt::format(
        "DataParallelOptions::processes is {}: give a number of workers, or 0 for one on each CPU", workers));
  check_module(module);
  share_memory_(module);
  for (const auto& [name, tensor] : named_tensors(module)) shared_.emplace_back(name, place_of(tensor));
  if (workers == 0) workers = usable_cpus();
  for (int index = 0; index < workers; ++index) {
    Pipe<ParallelTask> tasks({.duplex = false});
    Pipe<ParallelAnswer> answers({.duplex = false});
    Process<void> process = start(index, {.tasks = tasks.first, .answers = answers.second});
    workers_.push_back({std::move(process), std::move(tasks.second), std::move(answers.first), {}});
  }
}

ParallelCore::~ParallelCore() {
  // Each reads the end of file, and leaves; who does not is ended by its handle.
  for (Worker& worker : workers_) worker.tasks.close();
}

void ParallelCore::check_shared() const {
  std::map<std::string, Place> now;
  for (const auto& [name, tensor] : named_tensors(module_)) now.emplace(name, place_of(tensor));
  for (const auto& [name, place] : shared_)
    if (const auto own = now.find(name); own == now.end() || own->second != place)
      throw std::logic_error(fmt::format(
          "DataParallel: '{}' of the module is not the memory that the workers have: to(), set_data() or the "
          "like has changed it since. Make a new DataParallel afterwards",
          name));
}

std::vector<int> ParallelCore::pids() const {
  std::vector<int> all;
  all.reserve(workers_.size());
  for (const Worker& worker : workers_) all.push_back(worker.process.pid());
  return all;
}

std::vector<at::Tensor> ParallelCore::forward(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves = inputs;
  for (at::Tensor& leaf : module_leaves(module_)) leaves.push_back(std::move(leaf));
  const bool keeps_graph = at::GradMode::is_enabled() &&
                           std::ranges::any_of(leaves, [](const at::Tensor& leaf) { return leaf.requires_grad(); });
  if (keeps_graph) return forward_with_graph(shared_from_this(), inputs.size(), leaves);
  Pass pass;
  return run_forward(inputs, false, pass);
}

std::vector<at::Tensor> ParallelCore::run_forward(const std::vector<at::Tensor>& inputs, bool keeps_graph, Pass& pass) {
  const std::lock_guard lock(mutex_);
  const at::NoGradGuard no_grad;
  if (broken_) std::rethrow_exception(broken_);
  check_shared();
  auto parts = divide(inputs, dim_, workers_.size(), pass.input_sizes);
  pass.ticket = next_ticket_++;
  pass.parts = parts.size();
  pass.inputs = inputs.size();

  ParallelForward task{.ticket = pass.ticket,
                       .keeps_graph = keeps_graph,
                       .seed = -1,
                       .training = module_codec::training_flags(module_),
                       .requires_grad = {},
                       .input_requires_grad = {},
                       .autocast = {},
                       .inputs = {},
                       .buffers = {},
                       .forgotten = {}};
  for (const at::Tensor& leaf : module_leaves(module_)) task.requires_grad.push_back(leaf.requires_grad());
  for (const at::Tensor& input : inputs) task.input_requires_grad.push_back(keeps_graph && input.requires_grad());
  if (at::autocast::is_autocast_enabled(at::kCPU)) task.autocast = at::autocast::get_autocast_dtype(at::kCPU);
  const bool trains = std::ranges::any_of(task.training, [](bool one) { return one; });
  constexpr std::int64_t kMostSeed = std::numeric_limits<std::int64_t>::max() - 4096;
  const std::int64_t seed = trains ? at::randint(kMostSeed, {1}, at::kLong).item<std::int64_t>() : -1;
  // Worker 0 writes to the buffers while it trains: the others get copies from before that.
  std::vector<at::Tensor> buffers = module_.buffers();
  {
    const SharedMemoryScope scope;
    for (at::Tensor& buffer : buffers)
      if (buffer.defined()) buffer = trains && parts.size() > 1 ? buffer.clone() : buffer.detach();
  }
  std::size_t sent = 0;
  std::vector<std::vector<at::Tensor>> answers;
  try {
    answers = ask(pass.parts, sent, [&](std::size_t index) {
      task.seed = trains ? seed + std::int64_t(index) : -1;
      task.inputs = std::move(parts[index]);
      task.buffers = index == 0 ? std::vector<at::Tensor>() : buffers;
      const std::lock_guard forgotten(forgotten_mutex_);
      task.forgotten = std::exchange(workers_[index].forgotten, {});
      return ParallelTask(task);
    });
  } catch (...) {
    if (sent < pass.parts) {
      const std::lock_guard forgotten(forgotten_mutex_);
      std::ranges::copy(task.forgotten, std::back_inserter(workers_[sent].forgotten));
    }
    throw;
  }
  std::vector<at::Tensor> outputs;
  pass.sizes.assign(answers[0].size(), {});
  for (std::size_t output = 0; output < answers[0].size(); ++output) {
    std::vector<at::Tensor> of_parts;
    for (const auto& answer : answers) {
      if (answer.size() != answers[0].size())
        throw std::invalid_argument("DataParallel: forward() returned another number of tensors for another part");
      of_parts.push_back(answer[output]);
    }
    if (of_parts[0].dim() == 0) {
      outputs.push_back(at::stack(of_parts));
      continue;
    }
    for (const at::Tensor& part : of_parts) pass.sizes[output].push_back(part.size(dim_));
    outputs.push_back(at::cat(of_parts, dim_));
  }
  return outputs;
}

std::vector<at::Tensor> ParallelCore::run_backward(Pass& pass, const std::vector<at::Tensor>& gradients,
                                                   bool keeps_graph) {
  const std::lock_guard lock(mutex_);
  if (broken_) std::rethrow_exception(broken_);
  if (pass.spent)
    throw std::logic_error(
        "DataParallel: a second backward pass through a graph that the first one has freed; say retain_graph there");
  std::vector<std::vector<at::Tensor>> of_parts(pass.parts);
  for (std::size_t output = 0; output < gradients.size(); ++output) {
    if (pass.sizes[output].empty()) {
      for (std::size_t part = 0; part < pass.parts; ++part)
        of_parts[part].push_back(in_heap(gradients[output][std::int64_t(part)]));
      continue;
    }
    const auto parts = gradients[output].split_with_sizes(pass.sizes[output], dim_);
    for (std::size_t part = 0; part < pass.parts; ++part) of_parts[part].push_back(in_heap(parts[part]));
  }
  std::size_t sent = 0;
  const auto note = [&] {
    pass.spent = !keeps_graph && sent > 0;
    pass.freed = !keeps_graph && sent == pass.parts;
  };
  std::vector<std::vector<at::Tensor>> answers;
  try {
    answers = ask(pass.parts, sent, [&](std::size_t index) {
      return ParallelTask(
          ParallelBackward{.ticket = pass.ticket, .keeps_graph = keeps_graph, .gradients = std::move(of_parts[index])});
    });
  } catch (...) {
    note();
    throw;
  }
  note();
  const SharedMemoryScope scope;  // where the sums lie, too
  std::vector<at::Tensor> results;
  for (std::size_t place = 0; place < answers[0].size(); ++place) {
    const bool divided = place < pass.inputs && !pass.input_sizes[place].empty();
    if (!divided) {
      results.push_back(sum_in_order(answers, place));
      continue;
    }
    results.push_back(put_together(answers, place, pass.input_sizes[place], dim_));
  }
  return results;
}

void ParallelCore::forget(const Pass& pass) noexcept {
  const std::lock_guard lock(forgotten_mutex_);
  if (!pass.freed)
    for (std::size_t index = 0; index < pass.parts; ++index) workers_[index].forgotten.push_back(pass.ticket);
}

template <class TaskFor>
std::vector<std::vector<at::Tensor>> ParallelCore::ask(std::size_t count, std::size_t& sent, TaskFor&& task_for) {
  try {
    for (; sent < count; ++sent) workers_[sent].tasks.send(task_for(sent));
  } catch (const BrokenPipe&) {
    worker_gone(sent);
  } catch (...) {
    // The workers before this one answer nevertheless.
    const std::exception_ptr failure = std::current_exception();
    try {
      (void)receive(sent);
    } catch (...) {
      // What a worker raised matters no more. If an answer cannot be had, broken_ says so to the next call.
    }
    std::rethrow_exception(failure);
  }
  return receive(count);
}

std::vector<std::vector<at::Tensor>> ParallelCore::receive(std::size_t count) {
  std::vector<std::vector<at::Tensor>> all(count);
  std::optional<std::pair<std::size_t, RaisedException>> first;
  for (std::size_t index = 0; index < count; ++index) {
    ParallelAnswer answer;
    try {
      answer = workers_[index].answers.recv();
    } catch (const EndOfFile&) {
      worker_gone(index);
    } catch (...) {
      // Nobody knows whether the answer is still to come.
      broken_ = std::current_exception();
      throw;
    }
    if (answer.raised && !first) first.emplace(index, std::move(*answer.raised));
    all[index] = std::move(answer.tensors);
  }
  if (first) {
    const Process<void>& process = workers_[first->first].process;
    const auto failure = make_failure({.name = process.name(), .rank = -1, .pid = process.pid()}, first->second);
    throw ProcessRaised(dynamic_cast<const ProcessRaised&>(*failure));
  }
  return all;
}

void ParallelCore::worker_gone(std::size_t index) {
  Process<void>& process = workers_[index].process;
  try {
    process.result();  // throws what its end was
    throw Error(fmt::format("DataParallel: worker '{}' has ended by itself: make a new DataParallel", process.name()));
  } catch (const ProcessExited& end) {
    broken_ = std::make_exception_ptr(WorkerGone(end));
  } catch (const ProcessRaised& end) {
    broken_ = std::make_exception_ptr(WorkerGone(end));
  } catch (...) {
    broken_ = std::current_exception();
  }
  std::rethrow_exception(broken_);
}

}  // namespace shoal::detail
