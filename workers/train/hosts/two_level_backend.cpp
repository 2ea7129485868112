#include <shoal/internal/workers/train/hosts/two_level_backend.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/backend/arguments.h>
#include <shoal/internal/workers/train/backend/collective_work.h>
#include <shoal/internal/workers/train/backend/reduction.h>
#include <shoal/internal/workers/train/group/tensor_bytes.h>

#include <numeric>
#include <stdexcept>

namespace shoal {
namespace {

using arguments::check_like;
using arguments::check_only_on_root;
using arguments::check_root_tensor;
using arguments::flatten;
using arguments::only;

ReduceOp reduce_op(const c10d::ReduceOp& op) {
  if (op == c10d::ReduceOp::PREMUL_SUM)
    throw std::invalid_argument("backend shm+gloo has no PREMUL_SUM: multiply first, then sum");
  return Reduction(op).op();
}

c10::intrusive_ptr<c10d::Work> done(c10d::OpType type, const std::vector<at::Tensor>& outputs) {
  auto work = c10::make_intrusive<CollectiveWork>(type, outputs, 0);
  work->end(nullptr, {});
  return work;
}

/// The tensors one after the other, as one row. All have to be like `like`, as many as there are ranks.
at::Tensor row_of(const std::vector<at::Tensor>& tensors, const at::Tensor& like, int world, const char* what) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) {
    check_like(like, tensor, what);
    rows.push_back(tensor.detach().reshape({-1}));
  }
  if (int(rows.size()) != world)
    throw std::invalid_argument(fmt::format("{}: {} inputs in a group of {} ranks", what, rows.size(), world));
  return at::cat(rows);
}

/// Bytes of each rank's part of a tensor that is cut along its first dimension.
std::vector<std::size_t> part_bytes(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int world,
                                    const char* name) {
  if (tensor.dim() == 0)
    throw std::invalid_argument(fmt::format("alltoall_base: the {} has no dimension to be cut along", name));
  const std::int64_t rows = tensor.size(0);
  if (splits.empty() ? rows % world != 0 : int(splits.size()) != world)
    throw std::invalid_argument(fmt::format("alltoall_base: {} rows of the {} and {} sizes of parts, in a group of {}",
                                            rows, name, splits.size(), world));
  std::vector<std::size_t> parts;
  std::int64_t sum = 0;
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t part = splits.empty() ? rows / world : splits[std::size_t(rank)];
    if (part < 0) throw std::invalid_argument(fmt::format("alltoall_base: a part of {} rows of the {}", part, name));
    sum += part;
    parts.push_back(rows == 0 ? 0 : std::size_t(part) * (tensor.nbytes() / std::size_t(rows)));
  }
  if (sum != rows)
    throw std::invalid_argument(
        fmt::format("alltoall_base: parts of {} rows in all, and the {} has {}", sum, name, rows));
  return parts;
}

[[noreturn]] void refuse_point_to_point(const char* what) {
  throw std::invalid_argument(
      fmt::format("{}: backend shm+gloo has no point-to-point calls; backend 'gloo' has them", what));
}

}  // namespace

TwoLevelBackend::TwoLevelBackend(TwoLevelGroup::Parts parts)
    : Backend(parts.map.me, parts.map.world_size()), group_(std::move(parts)) {}

void TwoLevelBackend::setTimeout(std::chrono::milliseconds timeout) {
  std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

std::unique_lock<std::mutex> TwoLevelBackend::start(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  group_.set_timeout(timeout.count() > 0 ? timeout : timeout_);
  return lock;
}

void TwoLevelBackend::all_reduce_one(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  TensorBytes bytes(tensor, "allreduce");
  group_.all_reduce(bytes.region(), tensor.scalar_type(), reduce_op(op));
  bytes.write_back();
}

TwoLevelBackend::Work TwoLevelBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  auto turn = start(options.timeout);
  all_reduce_one(only(tensors, "allreduce"), options.reduceOp);
  return done(c10d::OpType::ALLREDUCE, tensors);
}

TwoLevelBackend::Work TwoLevelBackend::allreduce_coalesced(Tensors& tensors,
                                                           const c10d::AllreduceCoalescedOptions& options) {
  auto turn = start(options.timeout);
  for (const at::Tensor& tensor : tensors)
    if (tensor.scalar_type() != tensors[0].scalar_type())
      throw std::invalid_argument(fmt::format("allreduce_coalesced of {} and {}: all tensors have to have one type",
                                              c10::toString(tensors[0].scalar_type()),
                                              c10::toString(tensor.scalar_type())));
  for (const at::Tensor& tensor : tensors) all_reduce_one(tensor, options.reduceOp);
  return done(c10d::OpType::ALLREDUCE_COALESCED, tensors);
}

TwoLevelBackend::Work TwoLevelBackend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  throw std::invalid_argument("backend shm+gloo has no allreduce of sparse tensors: make them dense");
}

TwoLevelBackend::Work TwoLevelBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  auto turn = start(options.timeout);
  const at::Tensor& tensor = only(tensors, "reduce");
  check_root_tensor(options.rootTensor, "reduce");
  TensorBytes bytes(tensor, "reduce");
  group_.reduce(bytes.region(), tensor.scalar_type(), reduce_op(options.reduceOp), int(options.rootRank));
  if (options.rootRank == getRank()) bytes.write_back();
  return done(c10d::OpType::REDUCE, tensors);
}

TwoLevelBackend::Work TwoLevelBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  auto turn = start(options.timeout);
  TensorBytes bytes(only(tensors, "broadcast"), "broadcast");
  check_root_tensor(options.rootTensor, "broadcast");
  group_.broadcast(bytes.region(), int(options.rootRank), tensors[0].scalar_type());
  if (options.rootRank != getRank()) bytes.write_back();
  return done(c10d::OpType::BROADCAST, tensors);
}

void TwoLevelBackend::all_gather_one(const Tensors& outputs, const at::Tensor& input) {
  TensorBytes source(input, "allgather");
  std::vector<TensorBytes> targets;
  std::vector<std::byte*> data;
  for (const at::Tensor& output : outputs) {
    check_like(output, input, "allgather");
    data.push_back(targets.emplace_back(output, "allgather").data());
  }
  group_.all_gather(source.region(), data, input.scalar_type());
  for (TensorBytes& target : targets) target.write_back();
}

/// A tensor with one part a rank, as the parts.
TwoLevelBackend::Tensors TwoLevelBackend::parts_of(const at::Tensor& whole, const at::Tensor& part,
                                                   const char* what) const {
  if (!whole.is_contiguous() || whole.numel() != part.numel() * getSize() || whole.scalar_type() != part.scalar_type())
    throw std::invalid_argument(fmt::format("{}: {} {} do not hold {} parts of {} {}, contiguous", what, whole.numel(),
                                            c10::toString(whole.scalar_type()), getSize(), part.numel(),
                                            c10::toString(part.scalar_type())));
  const at::Tensor rows = whole.detach().view({getSize(), part.numel()});
  Tensors parts;
  for (int rank = 0; rank < getSize(); ++rank) parts.push_back(rows.select(0, rank));
  return parts;
}

TwoLevelBackend::Work TwoLevelBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  auto turn = start(options.timeout);
  all_gather_one(only(outputs, "allgather"), only(inputs, "allgather"));
  return done(c10d::OpType::ALLGATHER, outputs[0]);
}

TwoLevelBackend::Work TwoLevelBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions& options) {
  auto turn = start(options.timeout);
  all_gather_one(parts_of(output, input, "allgather"), input);
  return done(c10d::OpType::_ALLGATHER_BASE, {output});
}

TwoLevelBackend::Work TwoLevelBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
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

TwoLevelBackend::Work TwoLevelBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::AllgatherOptions& options) {
  auto turn = start(options.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    all_gather_one(parts_of(outputs.at(i), inputs[i], "allgather"), inputs[i]);
  return done(c10d::OpType::COALESCED, outputs);
}

TwoLevelBackend::Work TwoLevelBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
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
  group_.gather(source.region(), data, int(options.rootRank), input.scalar_type());
  for (TensorBytes& target : targets) target.write_back();
  return done(c10d::OpType::GATHER, flatten(outputs));
}

void TwoLevelBackend::reduce_scatter_one(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) {
  TensorBytes source(input, "reduce_scatter");
  TensorBytes target(output, "reduce_scatter");
  group_.reduce_scatter(source.region(), target.data(), output.scalar_type(), reduce_op(op));
  target.write_back();
}

TwoLevelBackend::Work TwoLevelBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                      const c10d::ReduceScatterOptions& options) {
  auto turn = start(options.timeout);
  at::Tensor& output = only(outputs, "reduce_scatter");
  reduce_scatter_one(output, row_of(only(inputs, "reduce_scatter"), output, getSize(), "reduce_scatter"),
                     options.reduceOp);
  return done(c10d::OpType::REDUCE_SCATTER, outputs);
}

TwoLevelBackend::Work TwoLevelBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  auto turn = start(options.timeout);
  parts_of(input, output, "reduce_scatter");
  reduce_scatter_one(output, input, options.reduceOp);
  return done(c10d::OpType::_REDUCE_SCATTER_BASE, {output});
}

TwoLevelBackend::Work TwoLevelBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::ReduceScatterOptions& options) {
  auto turn = start(options.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    parts_of(inputs[i], outputs.at(i), "reduce_scatter");
    reduce_scatter_one(outputs[i], inputs[i], options.reduceOp);
  }
  return done(c10d::OpType::COALESCED, outputs);
}

TwoLevelBackend::Work TwoLevelBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                               const c10d::ScatterOptions& options) {
  auto turn = start(options.timeout);
  at::Tensor& output = only(outputs, "scatter");
  TensorBytes target(output, "scatter");
  at::Tensor whole = at::empty_like(output);  // stays as it is if this rank is not root
  if (options.rootRank == getRank())
    whole = row_of(only(inputs, "scatter"), output, getSize(), "scatter");
  else
    check_only_on_root(inputs, "scatter", "inputs", options.rootRank);
  TensorBytes source(whole, "scatter");
  group_.scatter(source.region(), target.data(), output.nbytes(), int(options.rootRank), output.scalar_type());
  target.write_back();
  return done(c10d::OpType::SCATTER, outputs);
}

TwoLevelBackend::Work TwoLevelBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                     std::vector<std::int64_t>& output_splits,
                                                     std::vector<std::int64_t>& input_splits,
                                                     const c10d::AllToAllOptions& options) {
  auto turn = start(options.timeout);
  TensorBytes source(input, "alltoall_base");
  TensorBytes target(output, "alltoall_base");
  if (output.scalar_type() != input.scalar_type())
    throw std::invalid_argument(fmt::format("alltoall_base: an output of {} for an input of {}",
                                            c10::toString(output.scalar_type()), c10::toString(input.scalar_type())));
  group_.all_to_all(source.region(), part_bytes(input, input_splits, getSize(), "input"), target.data(),
                    part_bytes(output, output_splits, getSize(), "output"), input.scalar_type());
  target.write_back();
  return done(c10d::OpType::ALLTOALL_BASE, {output});
}

TwoLevelBackend::Work TwoLevelBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllToAllOptions& options) {
  auto turn = start(options.timeout);
  const auto world = std::size_t(getSize());
  if (inputs.size() != world || outputs.size() != world)
    throw std::invalid_argument(
        fmt::format("alltoall: {} outputs and {} inputs in a group of {} ranks", outputs.size(), inputs.size(), world));
  Tensors rows;
  std::vector<std::size_t> out_bytes, in_bytes;
  std::int64_t elements = 0;
  for (std::size_t rank = 0; rank < world; ++rank) {
    for (const at::Tensor* tensor : {&inputs[rank], &outputs[rank]})
      if (!tensor->defined() || tensor->scalar_type() != inputs[0].scalar_type())
        throw std::invalid_argument("alltoall: all tensors have to be there and have one type");
    rows.push_back(inputs[rank].detach().reshape({-1}));
    in_bytes.push_back(inputs[rank].nbytes());
    out_bytes.push_back(outputs[rank].nbytes());
    elements += outputs[rank].numel();
  }
  const at::Tensor sent = at::cat(rows), received = at::empty({elements}, inputs[0].options());
  TensorBytes source(sent, "alltoall");
  group_.all_to_all(source.region(), in_bytes, TensorBytes(received, "alltoall").data(), out_bytes,
                    inputs[0].scalar_type());
  std::int64_t at = 0;
  for (at::Tensor& output : outputs) {
    output.detach().copy_(received.narrow(0, at, output.numel()).view(output.sizes()));
    at += output.numel();
  }
  return done(c10d::OpType::ALLTOALL, outputs);
}

TwoLevelBackend::Work TwoLevelBackend::barrier(const c10d::BarrierOptions& options) {
  auto turn = start(options.timeout);
  group_.barrier();
  return done(c10d::OpType::BARRIER, {});
}

TwoLevelBackend::Work TwoLevelBackend::send(Tensors&, int, int) { refuse_point_to_point("send"); }
TwoLevelBackend::Work TwoLevelBackend::recv(Tensors&, int, int) { refuse_point_to_point("recv"); }
TwoLevelBackend::Work TwoLevelBackend::recvAnysource(Tensors&, int) { refuse_point_to_point("recvAnysource"); }

}  // namespace shoal
