// Collectives on views of one shared tensor that overlap.
#include <fmt/format.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/communicator.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace overlap_test {

namespace {

/// Several chunks, so that a rank that began to write would meet one that still reads.
constexpr std::int64_t kCount = 300'000;

Region region_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes(), shared_hold(tensor)};
}

/// Rank's data: of the shared tensor from `rank * shift` on, or for the last rank of four, private.
at::Tensor data_of(int rank, int world, const at::Tensor& shared, std::int64_t shift) {
  at::Tensor view = shared.narrow(0, rank * shift, kCount);
  return rank == 3 && world == 4 ? view.clone() : view;
}

enum class What { all_reduce, reduce, broadcast };

at::Tensor reduce_views(int rank, ShmGroup group, at::Tensor shared, std::int64_t shift, What what) {
  at::set_num_threads(1);
  Communicator ranks = group.join(rank);
  at::Tensor own = data_of(rank, ranks.world_size(), shared, shift);
  if (what == What::all_reduce) ranks.all_reduce(region_of(own), at::kInt, ReduceOp::sum);
  if (what == What::reduce) ranks.reduce(region_of(own), at::kInt, ReduceOp::sum, 1);
  if (what == What::broadcast) ranks.broadcast(region_of(own), 1);
  ranks.barrier();
  return own.clone();
}

at::Tensor some_values(std::int64_t count) { return (torch::arange(count, at::kLong) * 7 % 1000).to(at::kInt); }

}  // namespace

TEST_CASE("communicator: overlapping views of one shared tensor are reduced as copies, and written rank by rank") {
  for (int world : {2, 3, 4})
    for (std::int64_t shift : {1, 50'000})
      for (What what : {What::all_reduce, What::reduce, What::broadcast}) {
        INFO(world << " ranks, views " << shift << " apart, collective " << int(what));
        at::Tensor shared = some_values(kCount + world * shift);
        std::vector<at::Tensor> inputs;
        at::Tensor result = torch::zeros({kCount}, at::kInt);
        for (int rank = 0; rank < world; ++rank) {
          inputs.push_back(data_of(rank, world, shared, shift).clone());
          result += inputs.back();
        }
        if (what == What::broadcast) result = inputs[1];
        at::Tensor wanted = shared.clone();
        for (int rank = 0; rank < world; ++rank)
          if (!(rank == 3 && world == 4) && (what == What::all_reduce || (what == What::reduce) == (rank == 1)))
            wanted.narrow(0, rank * shift, kCount).copy_(result);
        share_memory_(shared);
        auto seen = spawn({.nprocs = world}, reduce_views, ShmGroup(world), shared, shift, what);
        CHECK(torch::equal(shared, wanted));
        if (world == 4) CHECK(torch::equal(seen[3], what == What::reduce ? inputs[3] : result));
      }
}

}  // namespace overlap_test
