// What a process group over "shm" does as a whole: its name, and its parts.
#include <shoal/workers/train/process_group.h>

#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/split.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace process_group_test {

namespace {

constexpr int kWorld = 4;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

float sum_in(const c10::intrusive_ptr<c10d::ProcessGroup>& group, float own) {
  std::vector<at::Tensor> value{torch::full({3}, own)};
  group->allreduce(value)->wait();
  return value[0][0].item<float>();
}

/// Halves, then a half of the first one, then one that only two ranks are in.
std::string split_up(int rank, ShmGroup group) {
  auto world = init_process_group(group, rank);
  require(world->getBackendName() == "shm", "the group's name is not the backend's");
  const std::vector<int> half = rank < 2 ? std::vector<int>{1, 0} : std::vector<int>{2, 3};
  auto part = world->splitGroup(half, std::nullopt, std::nullopt, "half", std::nullopt);
  require(part && part->getSize() == 2 && part->getRank() == rank % 2, "size and rank in the half");
  require(part->getGroupName() == "half" && part->getBackendName() == "shm", "the half's names");
  require(sum_in(part, float(rank)) == (rank < 2 ? 1 : 5), "the sum in the half");
  require(sum_in(world, float(rank)) == 6, "the sum in all");
  auto alone = part->splitGroup({rank % 2}, std::chrono::seconds(5), std::nullopt, std::nullopt, std::nullopt);
  require(alone && alone->getSize() == 1 && sum_in(alone, 7) == 7, "a part of a part");
  auto odd = world->splitGroup({1, 3}, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  require(bool(odd) == (rank % 2 == 1), "who is a member");
  if (odd) require(odd->getRank() == rank / 2 && sum_in(odd, float(rank)) == 4, "the sum of the odd ones");
  part = {};  // the parts may go before the whole, and in any order
  require(sum_in(world, 1) == 4, "the sum in all, afterwards");
  return "went through";
}

std::string disagree(int rank, ShmGroup group) {
  auto world = init_process_group(group, rank);
  std::string said;
  try {
    world->splitGroup({0, rank == 0 ? 1 : 2}, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  } catch (const std::invalid_argument& error) {
    said = error.what();
  }
  return sum_in(world, 1) == 3 ? said : "wrong sum afterwards";
}

}  // namespace

TEST_CASE("process group: splitGroup gives groups of the ranks that it is told") {
  const std::size_t before = heap_bytes_in_use();
  for (auto& said : spawn({.nprocs = kWorld}, split_up, ShmGroup(kWorld))) CHECK(said == "went through");
  CHECK(Session::current().published_keys().empty());
  CHECK(heap_bytes_in_use() == before);
}

TEST_CASE("process group: members that give splitGroup other lists are all told") {
  for (auto& said : spawn({.nprocs = 3}, disagree, ShmGroup(3)))
    CHECK_THAT(said,
               ContainsSubstring("split: rank 0 wants a group of the ranks 0, 1, and rank 1, which is one of them, "
                                 "of 0, 2"));
}

TEST_CASE("process group: a list of ranks that makes no sense is refused at the call") {
  Communicator alone = ShmGroup(1).join(0);
  CHECK_THROWS_WITH(split(alone, {}), ContainsSubstring("a group of no ranks"));
  CHECK_THROWS_WITH(split(alone, {0, 1}), ContainsSubstring("rank 1 of a group of 1"));
  CHECK_THROWS_WITH(split(alone, {0, 0}), ContainsSubstring("rank 0 twice"));
  CHECK(split(alone, {0})->world_size() == 1);
}

}  // namespace process_group_test
