#include <shoal/internal/workers/train/backend/collective_backend.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/backend/arguments.h>
#include <shoal/internal/workers/train/backend/joined_work.h>
#include <shoal/internal/workers/train/backend/transfer_work.h>
#include <shoal/internal/workers/train/collectives/monitored_ranks.h>
#include <shoal/internal/workers/train/collectives/row_exchange.h>
#include <shoal/internal/workers/train/collectives/tensor_bytes.h>
#include <shoal/internal/workers/train/collectives/tensor_messages.h>
#include <shoal/internal/workers/train/group/forward_pass.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/share.h>

#include <numeric>
#include <stdexcept>
#include <string>

namespace shoal {
namespace {

using arguments::check_like;
using arguments::check_only_on_root;
using arguments::check_root_tensor;
using arguments::flatten;
using arguments::only;

/// All elements of these tensors, one after the other.
at::Tensor one_row(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  rows.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) rows.push_back(tensor.detach().reshape({-1}));
  return at::cat(rows);
}

/// What makes no sense in alltoall's lists, whatever other ranks give; empty if nothing does.
std::string fault_in_lists(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int world) {
  if (int(inputs.size()) != world || int(outputs.size()) != world)
    return fmt::format("alltoall: {} outputs and {} inputs in a group of {} ranks", outputs.size(), inputs.size(),
                       world);
  const auto name_of_type = [](const at::Tensor& tensor) {
    return tensor.defined() ? c10::toString(tensor.scalar_type()) : "an undefined tensor";
  };
  for (const auto* list : {&inputs, &outputs})
    for (const at::Tensor& tensor : *list)
      if (!tensor.defined() || !inputs[0].defined() || tensor.scalar_type() != inputs[0].scalar_type())
        return fmt::format("alltoall of {} and {}: all tensors have to have one type", name_of_type(inputs[0]),
                           name_of_type(tensor));
  return {};
}

void check_counts(std::size_t outputs, std::size_t inputs, const char* what) {
  if (outputs != inputs)
    throw std::invalid_argument(fmt::format("{}: {} outputs for {} inputs", what, outputs, inputs));
}

/// A message of its own for each tensor would tell ranks that differ in it about sizes only.
void check_one_type(const std::vector<at::Tensor>& tensors, const char* what) {
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensors[0].defined() && tensor.scalar_type() != tensors[0].scalar_type())
      throw std::invalid_argument(fmt::format("{} of {} and {}: all tensors have to have one type", what,
                                              c10::toString(tensors[0].scalar_type()),
                                              c10::toString(tensor.scalar_type())));
}

Collective collective_of(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::BROADCAST:
      return Collective::broadcast;
    case c10d::OpType::REDUCE:
      return Collective::reduce;
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::ALLREDUCE_COALESCED:
    case c10d::OpType::_ALLREDUCE_SPARSE:
      return Collective::all_reduce;
    case c10d::OpType::GATHER:
      return Collective::gather;
    case c10d::OpType::SCATTER:
      return Collective::scatter;
    case c10d::OpType::REDUCE_SCATTER:
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return Collective::reduce_scatter;
    case c10d::OpType::ALLTOALL:
    case c10d::OpType::ALLTOALL_BASE:
      return Collective::all_to_all;
    case c10d::OpType::BARRIER:
      return Collective::barrier;
    case c10d::OpType::UNKNOWN:
      return Collective::split;
    default:
      return Collective::all_gather;
  }
}

c10d::ErrorType error_type(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const TimeoutError&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const std::logic_error&) {
    return c10d::ErrorType::SUCCESS;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

bool is_mismatch(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const CollectiveMismatch&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

CollectiveBackend::CollectiveBackend(std::unique_ptr<RankGroup> ranks, Progress progress)
    : Backend(ranks->rank(), ranks->world_size()), ranks_(std::move(ranks)), progress_(progress) {
  if (progress_ == Progress::thread) thread_.emplace();
}

void CollectiveBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_.store(timeout, std::memory_order_relaxed);  // relaxed: a number by itself
}

c10::intrusive_ptr<c10d::Backend::Options> CollectiveBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(getBackendName(), timeout());
}

/// What c10d calls a collective, and what the ranks do.
struct CollectiveBackend::Kind {
  Kind(c10d::OpType of) : type(of), what(collective_of(of)) {}  // NOLINT(google-explicit-constructor): both or one
  Kind(c10d::OpType of, Collective done) : type(of), what(done) {}
  c10d::OpType type;
  Collective what;
};

template <class Body>
void CollectiveBackend::perform(CollectiveWork& work, Collective what, std::chrono::milliseconds timeout,
                                const Body& body) {
  std::exception_ptr failure;
  const auto since = std::chrono::steady_clock::now();
  std::optional<ForwardPassScope> in_group(ForwardPassScope::current().called_by(this));
  try {
    // Its own timeout overrides the backend's.
    ranks_->set_timeout(timeout.count() > 0 ? timeout : this->timeout());
    begun_before_ = ranks_->begun();
    body();
  } catch (...) {
    failure = std::current_exception();
    error_.store(error_type(failure), std::memory_order_relaxed);  // relaxed: a word by itself
    const bool has_begun = ranks_->begun() != begun_before_;
    if (!has_begun) refuse(what, failure);
    if (!has_begun || is_mismatch(failure)) mismatches_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number
  }
  in_group.reset();  // what is chained to the work may be another group's
  work.end(failure, std::chrono::steady_clock::now() - since);
}

/// Nothing of the collective has begun here, and the others wait in it: they get this rank's reason.
void CollectiveBackend::refuse(Collective what, const std::exception_ptr& failure) noexcept {
  try {
    std::string why;
    try {
      std::rethrow_exception(failure);
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
    } catch (const std::exception& error) {
      why = error.what();
    }
    ranks_->refuse(what, why.substr(0, why.find('\n')));
  } catch (...) {
    // What this rank says is its own reason.
  }
}

/// Begins a collective: does it, or gives it to the thread.
template <class Body>
CollectiveBackend::Work CollectiveBackend::submit(Kind kind, std::chrono::milliseconds timeout, Tensors outputs,
                                                  Body body) {
  std::unique_lock turn(mutex_);
  auto work = c10::make_intrusive<CollectiveWork>(kind.type, std::move(outputs), ++sequence_);
  const auto since = std::chrono::steady_clock::now();
  if (thread_) {
    // A copy of the hook: what is chained to the work's future may have the last share of this.
    thread_->push([this, work, what = kind.what, timeout, since, hook = onCompletionHook_,
                   pass = ForwardPassScope::current(), body = std::move(body)] {
      const ForwardPassScope scope(pass);  // also of what is chained to the work's end
      perform(*work, what, timeout, body);
      report(hook, *work, since);
    });
    return begun(std::move(work));
  }
  perform(*work, kind.what, timeout, body);
  if (progress_ == Progress::automatic && work->isSuccess()) choose_progress();
  const auto hook = onCompletionHook_;
  turn.unlock();
  report(hook, *work, since);
  if (auto failure = work->exception()) std::rethrow_exception(failure);
  return begun(std::move(work));
}

/// Calls the hook, without a lock: it is others' code.
void CollectiveBackend::report(const Hook& hook, const CollectiveWork& work,
                               std::chrono::steady_clock::time_point since) {
  if (!hook) return;
  hook(std::make_shared<c10d::WorkInfo>(work.retrieveOpType(), work.getSequencenumber(), since,
                                        std::chrono::steady_clock::now(),
                                        std::chrono::duration_cast<std::chrono::duration<float>>(
                                            std::chrono::duration<float, std::milli>(work.getDuration()))));
}

CollectiveBackend::Work CollectiveBackend::begun(Work work) {
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

/// After a collective, when all ranks have said what CPUs they have. Each rank chooses for itself.
void CollectiveBackend::choose_progress() {
  constexpr double kEnough = 2;  // one for the backward pass, one for the collectives
  const bool thread = getSize() > 1 && ranks_->cpu_share() >= kEnough;
  progress_ = thread ? Progress::thread : Progress::in_call;
  if (progress_ == Progress::thread) thread_.emplace();
}

template <class Split>
c10::intrusive_ptr<CollectiveBackend> CollectiveBackend::part_by(Split split, std::chrono::milliseconds timeout) {
  std::unique_ptr<RankGroup> part;
  submit(c10d::OpType::UNKNOWN, std::chrono::milliseconds(0), {}, [&] { part = split(); })->wait();
  if (!part) return {};
  auto backend = c10::make_intrusive<CollectiveBackend>(std::move(part), progress_);
  backend->setTimeout(timeout);
  return backend;
}

c10::intrusive_ptr<CollectiveBackend> CollectiveBackend::split_off(const std::vector<int>& ranks,
                                                                   std::optional<std::chrono::milliseconds> timeout) {
  return part_by([&] { return ranks_->split(ranks); }, timeout.value_or(this->timeout()));
}

c10::intrusive_ptr<CollectiveBackend> CollectiveBackend::split_off(int color, int key) {
  return part_by([&] { return ranks_->split(color, key); }, timeout());
}

c10::intrusive_ptr<c10d::Backend> CollectiveBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                           const std::vector<int>& ranks,
                                                           const c10::intrusive_ptr<Options>& options) {
  return split_off(ranks, options ? std::optional(options->timeout) : std::nullopt);
}

void CollectiveBackend::all_reduce_one(const at::Tensor& tensor, const Reduction& reduction) {
  begun_before_ = ranks_->begun();
  if (tensor.defined() && tensor.layout() == c10::kSparse) return ranks_->all_reduce_sparse(tensor, reduction.op());
  const at::Tensor share = reduction.own_share(tensor);
  TensorBytes bytes(share, "allreduce");
  ranks_->all_reduce(bytes.region(), tensor.scalar_type(), reduction.op());
  bytes.write_back();
  if (!share.is_same(tensor)) tensor.detach().copy_(share);
}

CollectiveBackend::Work CollectiveBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return submit(c10d::OpType::ALLREDUCE, options.timeout, tensors,
                [this, tensors, op = options.reduceOp] { all_reduce_one(only(tensors, "allreduce"), Reduction(op)); });
}

CollectiveBackend::Work CollectiveBackend::allreduce_coalesced(Tensors& tensors,
                                                               const c10d::AllreduceCoalescedOptions& options) {
  return submit(c10d::OpType::ALLREDUCE_COALESCED, options.timeout, tensors, [this, tensors, op = options.reduceOp] {
    check_one_type(tensors, "allreduce_coalesced");
    const Reduction reduction(op);
    for (const at::Tensor& tensor : tensors) all_reduce_one(tensor, reduction);
  });
}

CollectiveBackend::Work CollectiveBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return submit(c10d::OpType::_ALLREDUCE_SPARSE, options.timeout, tensors, [this, tensors, op = options.reduceOp] {
    const at::Tensor& tensor = only(tensors, "allreduce_sparse");
    if (!tensor.defined() || tensor.layout() != c10::kSparse)
      throw std::invalid_argument(fmt::format(
          "allreduce_sparse of {}: give a sparse (COO) tensor",
          tensor.defined() ? c10::str("a ", tensor.layout(), " tensor") : std::string("an undefined tensor")));
    all_reduce_one(tensor, Reduction(op));
  });
}

CollectiveBackend::Work CollectiveBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return submit(c10d::OpType::REDUCE, options.timeout, tensors, [this, tensors, options] {
    check_root_tensor(options.rootTensor, "reduce");
    const at::Tensor& tensor = only(tensors, "reduce");
    const Reduction reduction(options.reduceOp);
    const at::Tensor share = reduction.own_share(tensor);
    TensorBytes bytes(share, "reduce");
    ranks_->reduce(bytes.region(), tensor.scalar_type(), reduction.op(), int(options.rootRank));
    if (options.rootRank != getRank()) return;
    bytes.write_back();
    if (!share.is_same(tensor)) tensor.detach().copy_(share);
  });
}

CollectiveBackend::Work CollectiveBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return submit(c10d::OpType::BROADCAST, options.timeout, tensors, [this, tensors, options] {
    check_root_tensor(options.rootTensor, "broadcast");
    const at::Tensor& tensor = only(tensors, "broadcast");
    TensorBytes bytes(tensor, "broadcast");
    ranks_->broadcast(bytes.region(), int(options.rootRank), tensor.scalar_type());
    if (options.rootRank != getRank()) bytes.write_back();
  });
}

void CollectiveBackend::all_gather_one(const Tensors& outputs, const at::Tensor& input) {
  begun_before_ = ranks_->begun();
  TensorBytes source(input, "allgather");
  std::vector<TensorBytes> targets;
  std::vector<std::byte*> data;
  for (const at::Tensor& output : outputs) {
    check_like(output, input, "allgather");
    data.push_back(targets.emplace_back(output, "allgather").data());
  }
  ranks_->all_gather(source.region(), data, input.scalar_type());
  for (TensorBytes& target : targets) target.write_back();
}

/// The parts of `whole` for the ranks, each as large as `part`.
CollectiveBackend::Tensors CollectiveBackend::parts_of(const at::Tensor& whole, const at::Tensor& part,
                                                       const char* what) const {
  if (!whole.defined() || !part.defined()) throw std::invalid_argument(fmt::format("{} of an undefined tensor", what));
  if (whole.numel() != part.numel() * getSize() || whole.scalar_type() != part.scalar_type() || !whole.is_contiguous())
    throw std::invalid_argument(fmt::format("{}: needs a contiguous buffer of {} times {} {}, this one has {} {}", what,
                                            getSize(), part.numel(), c10::toString(part.scalar_type()), whole.numel(),
                                            c10::toString(whole.scalar_type())));
  return whole.detach().view({getSize(), part.numel()}).unbind(0);
}

CollectiveBackend::Work CollectiveBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& options) {
  return submit(c10d::OpType::ALLGATHER, options.timeout, flatten(outputs),
                [this, outputs, inputs] { all_gather_one(only(outputs, "allgather"), only(inputs, "allgather")); });
}

CollectiveBackend::Work CollectiveBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::AllgatherOptions& options) {
  return submit(c10d::OpType::_ALLGATHER_BASE, options.timeout, {output}, [this, output = output, input = input] {
    all_gather_one(parts_of(output, input, "allgather"), input);
  });
}

CollectiveBackend::Work CollectiveBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                               const c10d::AllgatherOptions& options) {
  return submit(c10d::OpType::ALLGATHER_COALESCED, options.timeout, flatten(outputs), [this, outputs, inputs] {
    // Here the outer list goes over the ranks, and each has a tensor for every input.
    for (const Tensors& of_rank : outputs) check_counts(of_rank.size(), inputs.size(), "allgather_coalesced");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors of_ranks;
      for (const Tensors& of_rank : outputs) of_ranks.push_back(of_rank[i]);
      all_gather_one(of_ranks, inputs[i]);
    }
  });
}

CollectiveBackend::Work CollectiveBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                           const c10d::AllgatherOptions& options) {
  return submit(c10d::OpType::COALESCED, options.timeout, outputs, [this, outputs, inputs] {
    check_counts(outputs.size(), inputs.size(), "allgather_into_tensor_coalesced");
    std::vector<Tensors> places;
    places.reserve(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) places.push_back(parts_of(outputs[i], inputs[i], "allgather"));
    for (std::size_t i = 0; i < inputs.size(); ++i) all_gather_one(places[i], inputs[i]);
  });
}

CollectiveBackend::Work CollectiveBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::GatherOptions& options) {
  return submit(c10d::OpType::GATHER, options.timeout, flatten(outputs), [this, outputs, inputs, options] {
    const bool is_root = options.rootRank == getRank();
    if (!is_root) check_only_on_root(outputs, "gather", "outputs", options.rootRank);
    const at::Tensor& input = only(inputs, "gather");
    const Tensors places = is_root ? only(outputs, "gather") : Tensors();
    TensorBytes source(input, "gather");
    std::vector<TensorBytes> targets;
    std::vector<std::byte*> data;
    for (const at::Tensor& output : places) {
      check_like(output, input, "gather");
      data.push_back(targets.emplace_back(output, "gather").data());
    }
    ranks_->gather(source.region(), data, int(options.rootRank), input.scalar_type());
    for (TensorBytes& target : targets) target.write_back();
  });
}

void CollectiveBackend::reduce_scatter_one(const at::Tensor& output, const at::Tensor& input,
                                           const Reduction& reduction) {
  begun_before_ = ranks_->begun();
  TensorBytes source(reduction.own_share(input), "reduce_scatter");
  TensorBytes target(output, "reduce_scatter");
  ranks_->reduce_scatter(source.region(), target.data(), output.scalar_type(), reduction.op());
  target.write_back();
}

CollectiveBackend::Work CollectiveBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                          const c10d::ReduceScatterOptions& options) {
  return submit(c10d::OpType::REDUCE_SCATTER, options.timeout, outputs, [this, outputs, inputs, op = options.reduceOp] {
    const at::Tensor& output = only(outputs, "reduce_scatter");
    const Tensors& parts = only(inputs, "reduce_scatter");
    for (const at::Tensor& input : parts) check_like(output, input, "reduce_scatter");
    if (int(parts.size()) != getSize())
      throw std::invalid_argument(
          fmt::format("reduce_scatter: {} inputs in a group of {} ranks", parts.size(), getSize()));
    reduce_scatter_one(output, one_row(parts), Reduction(op));
  });
}

CollectiveBackend::Work CollectiveBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                const c10d::ReduceScatterOptions& options) {
  return submit(c10d::OpType::_REDUCE_SCATTER_BASE, options.timeout, {output},
                [this, output = output, input = input, op = options.reduceOp] {
                  parts_of(input, output, "reduce_scatter");
                  reduce_scatter_one(output, input, Reduction(op));
                });
}

CollectiveBackend::Work CollectiveBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                           const c10d::ReduceScatterOptions& options) {
  return submit(Kind(c10d::OpType::COALESCED, Collective::reduce_scatter), options.timeout, outputs,
                [this, outputs, inputs, op = options.reduceOp] {
                  check_counts(outputs.size(), inputs.size(), "reduce_scatter_tensor_coalesced");
                  for (std::size_t i = 0; i < inputs.size(); ++i) parts_of(inputs[i], outputs[i], "reduce_scatter");
                  const Reduction reduction(op);
                  for (std::size_t i = 0; i < inputs.size(); ++i) reduce_scatter_one(outputs[i], inputs[i], reduction);
                });
}

CollectiveBackend::Work CollectiveBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ScatterOptions& options) {
  return submit(c10d::OpType::SCATTER, options.timeout, outputs, [this, outputs, inputs, options] {
    const at::Tensor& output = only(outputs, "scatter");
    Tensors parts;
    if (options.rootRank == getRank()) {
      parts = only(inputs, "scatter");
      for (const at::Tensor& input : parts) check_like(output, input, "scatter");
      if (int(parts.size()) != getSize())
        throw std::invalid_argument(fmt::format("scatter: {} inputs in a group of {} ranks", parts.size(), getSize()));
    } else {
      check_only_on_root(inputs, "scatter", "inputs", options.rootRank);
    }
    TensorBytes target(output, "scatter");
    const at::Tensor whole = parts.empty() ? at::empty_like(output) : one_row(parts);
    TensorBytes source(whole, "scatter");
    ranks_->scatter(source.region(), target.data(), output.nbytes(), int(options.rootRank), output.scalar_type());
    target.write_back();
  });
}

CollectiveBackend::Work CollectiveBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                         std::vector<std::int64_t>& output_splits,
                                                         std::vector<std::int64_t>& input_splits,
                                                         const c10d::AllToAllOptions& options) {
  return submit(c10d::OpType::ALLTOALL_BASE, options.timeout, {output},
                [this, output = output, input = input, output_splits, input_splits] {
                  exchange_rows(*ranks_, output, input, output_splits, input_splits);
                });
}

CollectiveBackend::Work CollectiveBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllToAllOptions& options) {
  return submit(c10d::OpType::ALLTOALL, options.timeout, outputs, [this, outputs, inputs] {
    // What one rank gives alone may be wrong: the others have to learn of it.
    if (const std::string why = fault_in_lists(outputs, inputs, getSize()); !why.empty())
      ranks_->refuse(Collective::all_to_all, why);
    // One buffer each: rows of single elements, as many as each tensor has.
    std::vector<std::int64_t> output_splits, input_splits;
    for (const at::Tensor& input : inputs) input_splits.push_back(input.numel());
    for (const at::Tensor& output : outputs) output_splits.push_back(output.numel());
    const at::Tensor received =
        at::empty({std::accumulate(output_splits.begin(), output_splits.end(), std::int64_t(0))}, inputs[0].options());
    exchange_rows(*ranks_, received, one_row(inputs), output_splits, input_splits);
    std::int64_t at = 0;
    for (const at::Tensor& output : outputs) {
      output.detach().copy_(received.narrow(0, at, output.numel()).view(output.sizes()));
      at += output.numel();
    }
  });
}

CollectiveBackend::Work CollectiveBackend::barrier(const c10d::BarrierOptions& options) {
  return submit(c10d::OpType::BARRIER, options.timeout, {}, [this] { ranks_->barrier(); });
}

/// Beside the collectives, which may be what the ranks that are missing are in.
void CollectiveBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  monitored_barrier(*ranks_->mailbox(), getRank(), getSize(), options.timeout.count() > 0 ? options.timeout : timeout(),
                    wait_all_ranks ? MissingRanks::all : MissingRanks::first);
}

CollectiveBackend::Work CollectiveBackend::send(Tensors& tensors, int to, int tag) {
  return begun(c10::make_intrusive<TransferWork>(
      c10d::OpType::SEND, tensors, tensor_messages::isend(ranks_->mailbox(), only(tensors, "send"), to, tag),
      timeout()));
}

CollectiveBackend::Work CollectiveBackend::recv(Tensors& tensors, int from, int tag) {
  return begun(c10::make_intrusive<TransferWork>(
      c10d::OpType::RECV, tensors, tensor_messages::irecv(ranks_->mailbox(), only(tensors, "recv"), from, tag),
      timeout()));
}

CollectiveBackend::Work CollectiveBackend::recvAnysource(Tensors& tensors, int tag) {
  return begun(c10::make_intrusive<TransferWork>(
      c10d::OpType::RECVANYSOURCE, tensors,
      tensor_messages::irecv(ranks_->mailbox(), only(tensors, "recv"), Mailbox::kAnySource, tag), timeout()));
}

void CollectiveBackend::startCoalescing() {
  if (coalesced_) throw std::invalid_argument("startCoalescing() twice without an endCoalescing()");
  coalesced_.emplace();
}

CollectiveBackend::Work CollectiveBackend::endCoalescing() {
  if (!coalesced_) throw std::invalid_argument("endCoalescing() without a startCoalescing()");
  auto work = c10::make_intrusive<JoinedWork>(std::move(*coalesced_));
  coalesced_.reset();
  return work;
}

std::uint64_t CollectiveBackend::getSequenceNumberForGroup() {
  std::lock_guard turn(mutex_);
  return sequence_;
}

void CollectiveBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  waitForPendingWorks();  // they have the one before
  std::lock_guard turn(mutex_);
  onCompletionHook_ = std::move(hook);
}

/// The thread does all in order: what it does last is over when all is.
void CollectiveBackend::waitForPendingWorks() {
  std::unique_lock turn(mutex_);
  if (!thread_) return;
  auto last = c10::make_intrusive<CollectiveWork>(c10d::OpType::UNKNOWN, Tensors(), sequence_);
  thread_->push([last] { last->end(nullptr, {}); });
  turn.unlock();
  last->wait(kNoTimeout);
}

c10d::ErrorType CollectiveBackend::getError() {
  return error_.load(std::memory_order_relaxed);
}  // relaxed: a word by itself

at::Tensor CollectiveBackend::allocateTensor(long size, at::TensorOptions options) {
  return empty_shared({size}, options);
}

}  // namespace shoal
