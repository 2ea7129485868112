#include <shoal/internal/workers/train/collectives/sparse_reduce.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/trace_span.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace shoal {
namespace {

/// A rank's tensor, and what it wants.
struct SparsePart {
  at::Tensor tensor;
  int op;
};

std::string describe(const SparsePart& part) { return describe_sparse(part.tensor, ReduceOp(part.op)); }

/// The same elements in the heap: the other ranks get them as they are.
at::Tensor sparse_in_heap(const at::Tensor& tensor) {
  at::Tensor indices = empty_shared(tensor._indices().sizes(), tensor._indices().options()).copy_(tensor._indices());
  at::Tensor values = empty_shared(tensor._values().sizes(), tensor._values().options()).copy_(tensor._values());
  return at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes(), tensor.options())._coalesced_(true);
}

}  // namespace

void all_reduce_sparse(Communicator& ranks, const at::Tensor& tensor, ReduceOp op) {
  const TraceSpan span("all_reduce of a sparse tensor");
  const at::NoGradGuard no_grad;
  if (!tensor.device().is_cpu()) throw std::invalid_argument("all_reduce of a sparse tensor on a device");
  const SparsePart own{sparse_in_heap(tensor.detach().coalesce()), int(op)};
  std::vector<SparsePart> parts(std::size_t(ranks.world_size()));
  ranks.exchange({Collective::all_gather_object, -1, schema_of<SparsePart>(), "a sparse tensor",
                  [&](Encoder& encoder, int) { encode<SparsePart>(encoder, own); },
                  [&](Decoder& decoder, int from) {
                    parts[std::size_t(from)] = decode<SparsePart>(decoder);
                    decoder.finish();
                  }});
  for (const SparsePart& part : parts)
    if (part.op != parts[0].op || part.tensor.sizes() != parts[0].tensor.sizes() ||
        part.tensor.scalar_type() != parts[0].tensor.scalar_type() ||
        part.tensor.sparse_dim() != parts[0].tensor.sparse_dim())
      throw CollectiveMismatch(fmt::format("all_reduce: rank 0 gave the {}, and rank {} the {}", describe(parts[0]),
                                           &part - parts.data(), describe(part)));
  std::vector<at::Tensor> tensors;
  tensors.reserve(parts.size());
  for (const SparsePart& part : parts) tensors.push_back(part.tensor);
  write_sparse_reduction(tensor, tensors, op);
}

std::string describe_sparse(const at::Tensor& tensor, ReduceOp op) {
  return fmt::format("{} of a sparse tensor of {} [{}], {} of its dimensions sparse", name_of(op),
                     c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes().vec(), ", "), tensor.sparse_dim());
}

void write_sparse_reduction(const at::Tensor& tensor, const std::vector<at::Tensor>& parts, ReduceOp op) {
  const at::NoGradGuard no_grad;
  if (op != ReduceOp::sum && op != ReduceOp::avg)
    throw std::invalid_argument(
        fmt::format("all_reduce by {} of sparse tensors: they can be summed and averaged", name_of(op)));
  // Half types in float, as ReduceKernel does it; ATen does not add them where they are sparse.
  const auto type = tensor.scalar_type();
  const auto wide = type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  at::Tensor total = parts[0].to(wide);
  for (std::size_t rank = 1; rank < parts.size(); ++rank) total = total + parts[rank].to(wide);
  total = total.coalesce();
  if (op == ReduceOp::avg) total = total / double(parts.size());
  tensor.copy_(total.to(type));
}

}  // namespace shoal
