// Groups of some ranks of a group: who is in which, and several of them at work at once.
#include <shoal/workers/train/split.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/object_collectives.h>
#include <shoal/workers/train/point_to_point.h>
#include <shoal/workers/train/tensor_collectives.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace split_test {

namespace {

/// Who is in the group with this rank, by their ranks in it.
std::vector<int> members_of(std::optional<Communicator>& group, int rank) {
  return group ? all_gather_object(*group, rank) : std::vector<int>();
}

std::vector<std::vector<int>> groups_of_all_kinds(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  std::vector<std::vector<int>> seen;
  auto odd = new_group(ranks, {3, 1});
  seen.push_back(members_of(odd, rank));
  auto row = split(ranks, rank / 2, 0);
  seen.push_back(members_of(row, rank));
  auto backwards = split(ranks, 7, -rank);
  seen.push_back(members_of(backwards, rank));
  auto some = split(ranks, rank == 2 ? kNoColor : 0, rank == 3 ? -1 : 0);
  seen.push_back(members_of(some, rank));
  auto nobody = split(ranks, kNoColor, 0);
  seen.push_back(members_of(nobody, rank));
  return seen;
}

using Lists = std::vector<std::vector<int>>;

}  // namespace

TEST_CASE("sub-groups: new_group and split give each rank the group that it asked for, in order of keys and ranks") {
  const std::size_t before = heap_bytes_in_use();
  auto seen = spawn({.nprocs = 4}, groups_of_all_kinds, ShmGroup(4));
  CHECK(seen[0] == Lists{{}, {0, 1}, {3, 2, 1, 0}, {3, 0, 1}, {}});
  CHECK(seen[1] == Lists{{1, 3}, {0, 1}, {3, 2, 1, 0}, {3, 0, 1}, {}});
  CHECK(seen[2] == Lists{{}, {2, 3}, {3, 2, 1, 0}, {}, {}});
  CHECK(seen[3] == Lists{{1, 3}, {2, 3}, {3, 2, 1, 0}, {3, 0, 1}, {}});
  CHECK(Session::current().published_keys().empty());
  CHECK(heap_bytes_in_use() == before);
}

namespace {

std::vector<std::string> disagreements(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  std::vector<std::string> said;
  auto refuse = [&](auto&& call) {
    try {
      call();
      said.push_back("went through");
    } catch (const std::invalid_argument& error) {
      said.push_back(error.what());
    }
  };
  refuse([&] { new_group(ranks, {0, rank == 2 ? 2 : 1}); });
  refuse([&] { rank == 1 ? split(ranks, {0, 1}) : new_group(ranks, {0, 1}); });
  refuse([&] { rank == 1 ? split(ranks, 0, 0) : new_group(ranks, {0, 1}); });
  refuse([&] { split(ranks, -2, 0); });
  refuse([&] { new_group(ranks, {}); });
  refuse([&] { new_group(ranks, {0, 3}); });
  refuse([&] { new_group(ranks, {1, 1}); });
  auto all = new_group(ranks, {2, 0, 1});
  at::Tensor one = at::ones({1});
  all_reduce(*all, one);
  said.push_back(fmt::format("{}", one.item<float>()));
  return said;
}

}  // namespace

TEST_CASE("sub-groups: calls that differ are told to all ranks, lists that make no sense to their caller") {
  for (auto& said : spawn({.nprocs = 3}, disagreements, ShmGroup(3))) {
    REQUIRE(said.size() == 8);
    CHECK_THAT(said[0], ContainsSubstring("new_group: rank 0 wants a group of the ranks 0, 1, and rank 2 of 0, 2"));
    CHECK_THAT(said[1], ContainsSubstring("rank 0 called new_group where rank 1 called split"));
    CHECK_THAT(said[2], ContainsSubstring("all ranks have to call the same"));
    CHECK_THAT(said[3], ContainsSubstring("split: color -2"));
    CHECK_THAT(said[4], ContainsSubstring("new_group: a group of no ranks"));
    CHECK_THAT(said[5], ContainsSubstring("new_group: rank 3 of a group of 3"));
    CHECK_THAT(said[6], ContainsSubstring("new_group: rank 1 twice"));
    CHECK(said[7] == "3");
  }
}

namespace {

/// Rows, columns and the whole of a square of ranks, each used by a thread of its own; each thread goes on to make parts
/// of its group. Private and shared data of all sizes, and messages beside them.
int at_once(int rank, ShmGroup group) {
  at::set_num_threads(1);
  Communicator ranks = group.join(rank);
  std::vector<Communicator> groups;
  groups.push_back(*split(ranks, rank / 2, 0));
  groups.push_back(*split(ranks, rank % 2, 0));
  groups.push_back(std::move(ranks));
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (Communicator& own : groups)
    threads.emplace_back([&right, &own, rank] {
      float ranks_in_it = 0;
      for (int other : all_gather_object(own, rank)) ranks_in_it += float(other);
      for (int i = 0; i < 60; ++i) {
        at::Tensor value = at::full({i % 3 == 0 ? 200'000 : 100}, float(rank + i));
        if (i % 2 == 0) share_memory_(value);
        all_reduce(own, value);
        const float wanted = ranks_in_it + float(i * own.world_size());
        right += value[0].item<float>() == wanted && value[-1].item<float>() == wanted;
        const int next = (own.rank() + 1) % own.world_size(),
                  before = (own.rank() + own.world_size() - 1) % own.world_size();
        send_object(own, own.rank() * 1000 + i, next);
        right += recv_object<int>(own, before) == before * 1000 + i;
        if (i % 20 == 0) {
          auto alone = split(own, own.rank(), 0);
          right += alone->world_size() == 1;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  return right;
}

/// Rank 3 dies. Its row and the whole learn of it; the row without it goes on.
std::string beside_a_death(int rank, ShmGroup group) {
  Communicator ranks = group.join(rank);
  auto row = split(ranks, rank / 2, 0);
  row->barrier();
  if (rank == 3) ::raise(SIGKILL);
  std::string said;
  try {
    ranks.barrier();
  } catch (const PeerDied& death) {
    said = death.what();
  }
  if (rank == 2) {
    try {
      row->barrier();
    } catch (const PeerDied& death) {
      return death.what();
    }
  }
  at::Tensor one = at::ones({1});
  all_reduce(*row, one);
  return said + fmt::format("; {} in the row", one.item<float>());
}

}  // namespace

TEST_CASE("sub-groups: several groups of a process are used at once from several threads") {
  CHECK(spawn({.nprocs = 4}, at_once, ShmGroup(4)) == std::vector<int>(4, 3 * (60 + 60 + 3)));
}

TEST_CASE("sub-groups: a death is known in each group that the rank was in, and the others go on") {
  ShmGroup group(4);
  std::vector<Process<std::string>> processes;
  for (int rank = 0; rank < 4; ++rank) {
    processes.emplace_back(ProcessOptions{}, beside_a_death, rank, group);
    processes.back().start();
  }
  processes[3].join();
  for (int rank : {0, 1})
    CHECK_THAT(processes[std::size_t(rank)].result(),
               ContainsSubstring("barrier: rank 3 (process ") && ContainsSubstring("died; 2 in the row"));
  CHECK_THAT(processes[2].result(), ContainsSubstring("barrier: rank 1 (process ") && ContainsSubstring("died"));
}

}  // namespace split_test
