#include <shoal/internal/workers/train/backend/shm_backend.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/backend/finished_work.h>
#include <shoal/internal/workers/train/backend/transfer_work.h>
#include <shoal/internal/workers/train/group/tensor_bytes.h>
#include <shoal/workers/train/split.h>
#include <shoal/workers/train/tensor_collectives.h>

#include <numeric>
#include <stdexcept>

namespace shoal {
namespace {

ReduceOp reduce_op(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::bit_and;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bit_or;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bit_xor;
    default:
      throw std::invalid_argument("backend shm has no PREMUL_SUM: multiply first, then sum");
  }
}

template <class T>
T& only(std::vector<T>& list, const char* what) {
  if (list.size() != 1)
    throw std::invalid_argument(
        fmt::format("{} of {} tensors at once: a rank has one; use the coalesced form", what, list.size()));
  return list[0];
}

void check_like(const at::Tensor& output, const at::Tensor& input, const char* what) {
  if (output.numel() != input.numel() || output.scalar_type() != input.scalar_type())
    throw std::invalid_argument(fmt::format("{}: an output of {} {} for an input of {} {}", what, output.numel(),
                                            c10::toString(output.scalar_type()), input.numel(),
                                            c10::toString(input.scalar_type())));
}

/// c10d's lists have one tensor a rank here, so there is no other that could be the root's.
void check_root_tensor(std::int64_t root_tensor, const char* what) {
  if (root_tensor != 0)
    throw std::invalid_argument(fmt::format("{}: root tensor {}: a rank has one, number 0", what, root_tensor));
}

/// What only root gives: silently ignored elsewhere, a wrong root would look like success.
template <class T>
void check_only_on_root(const std::vector<T>& list, const char* what, const char* name, std::int64_t root) {
  if (!list.empty())
    throw std::invalid_argument(fmt::format(
        "{}: {} on a rank that is not root {}, which alone has them: give an empty list", what, name, root));
}

c10::intrusive_ptr<c10d::Work> done(c10d::OpType type, const std::vector<at::Tensor>& outputs) {
  return c10::make_intrusive<FinishedWork>(type, outputs);
}

std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

ShmBackend::ShmBackend(Communicator communicator)
    : Backend(communicator.rank(), communicator.world_size()), communicator_(std::move(communicator)) {}

void ShmBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_.store(timeout, std::memory_order_relaxed);  // relaxed: a number by itself
}

c10::intrusive_ptr<ShmBackend> ShmBackend::split_off(const std::vector<int>& ranks,
                                                     std::optional<std::chrono::milliseconds> timeout) {
  auto turn = start(std::chrono::milliseconds(0));
  auto part = shoal::split(communicator_, ranks);
  if (!part) return {};
  auto backend = c10::make_intrusive<ShmBackend>(std::move(*part));
  backend->setTimeout(timeout.value_or(this->timeout()));
  return backend;
}

std::unique_lock<std::mutex> ShmBackend::start(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  communicator_.set_timeout(timeout.count() > 0 ? timeout : this->timeout());
  return lock;
}

void ShmBackend::all_reduce_one(at::Tensor& tensor, const c10d::ReduceOp& op) {
  TensorBytes bytes(tensor, "allreduce");
  communicator_.all_reduce(bytes.region(), tensor.scalar_type(), reduce_op(op));
  bytes.write_back();
}

ShmBackend::Work ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  auto turn = start(options.timeout);
  all_reduce_one(only(tensors, "allreduce"), options.reduceOp);
  return done(c10d::OpType::ALLREDUCE, tensors);
}

ShmBackend::Work ShmBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  auto turn = start(options.timeout);
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensors[0].defined() && tensor.scalar_type() != tensors[0].scalar_type())
      throw std::invalid_argument(fmt::format("allreduce_coalesced of {} and {}: all tensors have to have one type",
                                              c10::toString(tensors[0].scalar_type()),
                                              c10::toString(tensor.scalar_type())));
  for (at::Tensor& tensor : tensors) all_reduce_one(tensor, options.reduceOp);
  return done(c10d::OpType::ALLREDUCE_COALESCED, tensors);
}

ShmBackend::Work ShmBackend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  throw std::invalid_argument(
      "backend shm has no allreduce of sparse tensors: make the gradients dense, for example by "
      "EmbeddingOptions().sparse(false)");
}

ShmBackend::Work ShmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  auto turn = start(options.timeout);
  at::Tensor& tensor = only(tensors, "reduce");
  check_root_tensor(options.rootTensor, "reduce");
  TensorBytes bytes(tensor, "reduce");
  communicator_.reduce(bytes.region(), tensor.scalar_type(), reduce_op(options.reduceOp), int(options.rootRank));
  if (options.rootRank == getRank()) bytes.write_back();
  return done(c10d::OpType::REDUCE, tensors);
}

ShmBackend::Work ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  auto turn = start(options.timeout);
  TensorBytes bytes(only(tensors, "broadcast"), "broadcast");
  check_root_tensor(options.rootTensor, "broadcast");
  communicator_.broadcast(bytes.region(), int(options.rootRank), tensors[0].scalar_type());
  if (options.rootRank != getRank()) bytes.write_back();
  return done(c10d::OpType::BROADCAST, tensors);
}

void ShmBackend::all_gather_one(const Tensors& outputs, const at::Tensor& input) {
  TensorBytes source(input, "allgather");
  std::vector<TensorBytes> targets;
  std::vector<std::byte*> data;
  for (const at::Tensor& output : outputs) {
    check_like(output, input, "allgather");
    data.push_back(targets.emplace_back(output, "allgather").data());
  }
  communicator_.all_gather(source.region(), data, input.scalar_type());
  for (TensorBytes& target : targets) target.write_back();
}

/// The parts of `whole` for the ranks, each as large as `part`.
ShmBackend::Tensors ShmBackend::parts_of(at::Tensor& whole, const at::Tensor& part, const char* what) const {
  if (whole.numel() != part.numel() * getSize() || whole.scalar_type() != part.scalar_type() || !whole.is_contiguous())
    throw std::invalid_argument(fmt::format("{}: needs a contiguous buffer of {} times {} {}, this one has {} {}", what,
                                            getSize(), part.numel(), c10::toString(part.scalar_type()), whole.numel(),
                                            c10::toString(whole.scalar_type())));
  return whole.detach().view({getSize(), part.numel()}).unbind(0);
}

ShmBackend::Work ShmBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  auto turn = start(options.timeout);
  all_gather_one(only(outputs, "allgather"), only(inputs, "allgather"));
  return done(c10d::OpType::ALLGATHER, outputs[0]);
}

ShmBackend::Work ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& options) {
  auto turn = start(options.timeout);
  all_gather_one(parts_of(output, input, "allgather"), input);
  return done(c10d::OpType::_ALLGATHER_BASE, {output});
}

ShmBackend::Work ShmBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  auto turn = start(options.timeout);
  // Here the outer list goes over the ranks, and each has a tensor for every input.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_ranks;
    for (Tensors& of_rank : outputs) of_ranks.push_back(of_rank.at(i));
    all_gather_one(of_ranks, inputs[i]);
  }
  return done(c10d::OpType::ALLGATHER_COALESCED, flatten(outputs));
}

ShmBackend::Work ShmBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::AllgatherOptions& options) {
  auto turn = start(options.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    all_gather_one(parts_of(outputs.at(i), inputs[i], "allgather"), inputs[i]);
  return done(c10d::OpType::COALESCED, outputs);
}

ShmBackend::Work ShmBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::GatherOptions& options) {
  auto turn = start(options.timeout);
  const at::Tensor& input = only(inputs, "gather");
  TensorBytes source(input, "gather");
  std::vector<TensorBytes> targets;
  std::vector<std::byte*> data;
  if (options.rootRank == getRank())
    for (const at::Tensor& output : only(outputs, "gather")) {
      check_like(output, input, "gather");
      data.push_back(targets.emplace_back(output, "gather").data());
    }
  else
    check_only_on_root(outputs, "gather", "outputs", options.rootRank);
  communicator_.gather(source.region(), data, int(options.rootRank), input.scalar_type());
  for (TensorBytes& target : targets) target.write_back();
  return done(c10d::OpType::GATHER, flatten(outputs));
}

void ShmBackend::reduce_scatter_one(at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) {
  TensorBytes source(input, "reduce_scatter");
  TensorBytes target(output, "reduce_scatter");
  communicator_.reduce_scatter(source.region(), target.data(), output.scalar_type(), reduce_op(op));
  target.write_back();
}

ShmBackend::Work ShmBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ReduceScatterOptions& options) {
  auto turn = start(options.timeout);
  at::Tensor& output = only(outputs, "reduce_scatter");
  Tensors rows;
  for (const at::Tensor& input : only(inputs, "reduce_scatter")) {
    check_like(output, input, "reduce_scatter");
    rows.push_back(input.detach().reshape({-1}));
  }
  if (int(rows.size()) != getSize())
    throw std::invalid_argument(
        fmt::format("reduce_scatter: {} inputs in a group of {} ranks", rows.size(), getSize()));
  reduce_scatter_one(output, at::cat(rows), options.reduceOp);
  return done(c10d::OpType::REDUCE_SCATTER, outputs);
}

ShmBackend::Work ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  auto turn = start(options.timeout);
  parts_of(input, output, "reduce_scatter");
  reduce_scatter_one(output, input, options.reduceOp);
  return done(c10d::OpType::_REDUCE_SCATTER_BASE, {output});
}

ShmBackend::Work ShmBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::ReduceScatterOptions& options) {
  auto turn = start(options.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    parts_of(inputs[i], outputs.at(i), "reduce_scatter");
    reduce_scatter_one(outputs[i], inputs[i], options.reduceOp);
  }
  return done(c10d::OpType::COALESCED, outputs);
}

ShmBackend::Work ShmBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ScatterOptions& options) {
  auto turn = start(options.timeout);
  at::Tensor& output = only(outputs, "scatter");
  TensorBytes target(output, "scatter");
  at::Tensor whole = at::empty_like(output);  // stays as it is if this rank is not root
  if (options.rootRank == getRank()) {
    Tensors rows;
    for (const at::Tensor& input : only(inputs, "scatter")) {
      check_like(output, input, "scatter");
      rows.push_back(input.detach().reshape({-1}));
    }
    if (int(rows.size()) != getSize())
      throw std::invalid_argument(fmt::format("scatter: {} inputs in a group of {} ranks", rows.size(), getSize()));
    whole = at::cat(rows);
  } else {
    check_only_on_root(inputs, "scatter", "inputs", options.rootRank);
  }
  TensorBytes source(whole, "scatter");
  communicator_.scatter(source.region(), target.data(), output.nbytes(), int(options.rootRank), output.scalar_type());
  target.write_back();
  return done(c10d::OpType::SCATTER, outputs);
}

ShmBackend::Work ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                           std::vector<std::int64_t>& output_splits,
                                           std::vector<std::int64_t>& input_splits,
                                           const c10d::AllToAllOptions& options) {
  auto turn = start(options.timeout);
  all_to_all_single(communicator_, output, input, output_splits, input_splits);
  return done(c10d::OpType::ALLTOALL_BASE, {output});
}

ShmBackend::Work ShmBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  auto turn = start(options.timeout);
  const auto world = std::size_t(getSize());
  if (inputs.size() != world || outputs.size() != world)
    throw std::invalid_argument(
        fmt::format("alltoall: {} outputs and {} inputs in a group of {} ranks", outputs.size(), inputs.size(), world));
  // One buffer each: rows of single elements, as many as each tensor has.
  Tensors rows;
  std::vector<std::int64_t> output_splits, input_splits;
  for (const Tensors* list : {&inputs, &outputs})
    for (const at::Tensor& tensor : *list) {
      if (!tensor.defined() || tensor.scalar_type() != inputs[0].scalar_type())
        throw std::invalid_argument(
            fmt::format("alltoall of {} and {}: all tensors have to have one type",
                        inputs[0].defined() ? c10::toString(inputs[0].scalar_type()) : "an undefined tensor",
                        tensor.defined() ? c10::toString(tensor.scalar_type()) : "an undefined tensor"));
      (list == &inputs ? input_splits : output_splits).push_back(tensor.numel());
      if (list == &inputs) rows.push_back(tensor.detach().reshape({-1}));
    }
  const at::Tensor received =
      at::empty({std::accumulate(output_splits.begin(), output_splits.end(), std::int64_t(0))}, inputs[0].options());
  all_to_all_single(communicator_, received, at::cat(rows), output_splits, input_splits);
  std::int64_t at = 0;
  for (at::Tensor& output : outputs) {
    output.detach().copy_(received.narrow(0, at, output.numel()).view(output.sizes()));
    at += output.numel();
  }
  return done(c10d::OpType::ALLTOALL, outputs);
}

ShmBackend::Work ShmBackend::barrier(const c10d::BarrierOptions& options) {
  auto turn = start(options.timeout);
  communicator_.barrier();
  return done(c10d::OpType::BARRIER, {});
}

ShmBackend::Work ShmBackend::send(Tensors& tensors, int to, int tag) {
  return c10::make_intrusive<TransferWork>(c10d::OpType::SEND, tensors,
                                           isend(communicator_, only(tensors, "send"), to, tag), timeout());
}

ShmBackend::Work ShmBackend::recv(Tensors& tensors, int from, int tag) {
  return c10::make_intrusive<TransferWork>(c10d::OpType::RECV, tensors,
                                           irecv(communicator_, only(tensors, "recv"), from, tag), timeout());
}

ShmBackend::Work ShmBackend::recvAnysource(Tensors& tensors, int tag) {
  return c10::make_intrusive<TransferWork>(c10d::OpType::RECVANYSOURCE, tensors,
                                           irecv_anysource(communicator_, only(tensors, "recv"), tag), timeout());
}

}  // namespace shoal
