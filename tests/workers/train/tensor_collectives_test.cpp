#include <shoal/workers/train/tensor_collectives.h>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

constexpr int kWorld = 3;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Rank + 1 times the same numbers: contiguous, a transposed view, or in the heap.
at::Tensor values(int times, int kind) {
  at::Tensor plain = at::arange(2000, at::kFloat).view({50, 40}) * times;
  if (kind == 1) return plain.t().contiguous().t();
  if (kind == 2) return empty_shared({50, 40}).copy_(plain);
  return plain;
}

int all_of_tensors(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  int checked = 0;
  auto check = [&](const char* what, const at::Tensor& got, int times) {
    require(at::equal(got, values(times, 0)), fmt::format("{} is wrong on rank {}", what, rank));
    ++checked;
  };
  for (int kind : {0, 1, 2}) {
    at::Tensor own = values(rank + 1, kind);
    all_reduce(ranks, own);
    check("all_reduce", own, 6);
    own = values(rank + 1, kind);
    all_reduce(ranks, own, ReduceOp::max);
    check("all_reduce by max", own, 3);
    own = values(rank + 1, kind);
    reduce(ranks, own, 1);
    check("reduce", own, rank == 1 ? 6 : rank + 1);
    own = values(rank + 1, kind);
    broadcast(ranks, own, 2);
    check("broadcast", own, 3);
    own = values(rank + 1, kind);
    std::vector<at::Tensor> all = all_gather(ranks, own);
    for (int other = 0; other < kWorld; ++other) check("all_gather", all[std::size_t(other)], other + 1);
    all = gather(ranks, own, 1);
    require(all.size() == (rank == 1 ? kWorld : 0), "who gathers");
    for (std::size_t other = 0; other < all.size(); ++other) check("gather", all[other], int(other) + 1);
  }
  return checked;
}

std::string differ_in_type(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  try {
    broadcast(ranks, at::arange(4, rank == 0 ? at::kInt : at::kFloat));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("tensor collectives: each gives every rank what it says, for tensors of all kinds") {
  auto checked = spawn({.nprocs = kWorld}, all_of_tensors, ShmGroup(kWorld));
  CHECK(checked == std::vector<int>{3 * 7, 3 * 10, 3 * 7});
}

TEST_CASE("tensor collectives: element types that differ are told to all ranks") {
  for (auto& said : spawn({.nprocs = 2}, differ_in_type, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("of Int") && ContainsSubstring("of Float"));
}
