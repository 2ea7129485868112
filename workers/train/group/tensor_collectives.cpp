#include <shoal/workers/train/tensor_collectives.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/internal/workers/train/group/sparse_reduce.h>
#include <shoal/internal/workers/train/group/tensor_bytes.h>

#include <optional>
#include <stdexcept>

namespace shoal {
namespace {

/// Room for every rank's tensor, and where each begins.
struct Room {
  std::vector<at::Tensor> tensors;
  std::vector<std::byte*> places;
  Room(const at::Tensor& like, int count) {
    for (int rank = 0; rank < count; ++rank) {
      tensors.push_back(at::empty(like.sizes(), like.options()));
      places.push_back(static_cast<std::byte*>(tensors.back().data_ptr()));
    }
  }
};

/// Bytes of each rank's part of a tensor that is cut along its first dimension.
std::vector<std::size_t> part_bytes(const at::Tensor& tensor, std::span<const std::int64_t> splits, int world,
                                    const char* name) {
  const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (tensor.dim() == 0)
    throw std::invalid_argument(fmt::format("all_to_all_single: the {} has no dimension to be cut along", name));
  if (splits.empty() && rows % world != 0)
    throw std::invalid_argument(fmt::format(
        "all_to_all_single: {} rows of the {} are not {} equal parts: give {}_splits", rows, name, world, name));
  if (!splits.empty() && int(splits.size()) != world)
    throw std::invalid_argument(
        fmt::format("all_to_all_single: {} {}_splits in a group of {} ranks", splits.size(), name, world));
  std::int64_t left = rows;
  std::vector<std::size_t> parts;
  const std::size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / std::size_t(rows);
  for (int rank = 0; rank < world; ++rank) {
    const std::int64_t part = splits.empty() ? rows / world : splits[std::size_t(rank)];
    if (part < 0 || part > left)
      throw std::invalid_argument(
          fmt::format("all_to_all_single: {}_splits[{}] is {}, and {} of the {}'s {} rows are left", name, rank, part,
                      left, name, rows));
    left -= part;
    parts.push_back(std::size_t(part) * row_bytes);
  }
  if (left != 0)
    throw std::invalid_argument(
        fmt::format("all_to_all_single: {}_splits leave {} of the {}'s {} rows over", name, left, name, rows));
  return parts;
}

}  // namespace

void all_to_all_single(Communicator& ranks, const at::Tensor& output, const at::Tensor& input,
                       std::span<const std::int64_t> output_splits, std::span<const std::int64_t> input_splits) {
  std::optional<TensorBytes> source, target;
  std::vector<std::size_t> input_bytes, output_bytes;
  try {
    source.emplace(input, "all_to_all_single");
    target.emplace(output, "all_to_all_single");
    if (output.scalar_type() != input.scalar_type())
      throw std::invalid_argument(fmt::format("all_to_all_single: an output of {} for an input of {}",
                                              c10::toString(output.scalar_type()), c10::toString(input.scalar_type())));
    input_bytes = part_bytes(input, input_splits, ranks.world_size(), "input");
    output_bytes = part_bytes(output, output_splits, ranks.world_size(), "output");
  } catch (const std::invalid_argument& error) {
    ranks.refuse(Collective::all_to_all, error.what());
  }
  ranks.all_to_all(source->region(), input_bytes, target->data(), output_bytes, input.scalar_type());
  target->write_back();
}

void all_reduce(Communicator& ranks, const at::Tensor& tensor, ReduceOp op) {
  if (tensor.defined() && tensor.layout() == c10::kSparse) return all_reduce_sparse(ranks, tensor, op);
  TensorBytes bytes(tensor, "all_reduce");
  ranks.all_reduce(bytes.region(), tensor.scalar_type(), op);
  bytes.write_back();
}

void reduce(Communicator& ranks, const at::Tensor& tensor, int root, ReduceOp op) {
  TensorBytes bytes(tensor, "reduce");
  ranks.reduce(bytes.region(), tensor.scalar_type(), op, root);
  if (ranks.rank() == root) bytes.write_back();
}

void broadcast(Communicator& ranks, const at::Tensor& tensor, int root) {
  TensorBytes bytes(tensor, "broadcast");
  ranks.broadcast(bytes.region(), root, tensor.scalar_type());
  if (ranks.rank() != root) bytes.write_back();
}

std::vector<at::Tensor> all_gather(Communicator& ranks, const at::Tensor& tensor) {
  const TensorBytes bytes(tensor, "all_gather");
  Room room(tensor, ranks.world_size());
  ranks.all_gather(bytes.region(), room.places, tensor.scalar_type());
  return std::move(room.tensors);
}

std::vector<at::Tensor> gather(Communicator& ranks, const at::Tensor& tensor, int root) {
  const TensorBytes bytes(tensor, "gather");
  Room room(tensor, ranks.rank() == root ? ranks.world_size() : 0);
  ranks.gather(bytes.region(), room.places, root, tensor.scalar_type());
  return std::move(room.tensors);
}

}  // namespace shoal
