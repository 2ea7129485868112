#include <shoal/workers/train/tensor_collectives.h>

#include <ATen/ops/empty.h>
#include <shoal/internal/workers/train/collectives/row_exchange.h>
#include <shoal/internal/workers/train/collectives/sparse_reduce.h>
#include <shoal/internal/workers/train/collectives/tensor_bytes.h>

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

}  // namespace

void all_to_all_single(Communicator& ranks, const at::Tensor& output, const at::Tensor& input,
                       std::span<const std::int64_t> output_splits, std::span<const std::int64_t> input_splits) {
  exchange_rows(ranks, output, input, output_splits, input_splits);
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
