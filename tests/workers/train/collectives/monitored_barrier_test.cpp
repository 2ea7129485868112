#include <shoal/workers/train/monitored_barrier.h>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/runtime/process.h>
#include <shoal/workers/train/process_group.h>
#include <shoal/workers/train/tensor_collectives.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace monitored_barrier_test {

namespace {

constexpr int kWorld = 4;

struct Scene {
  std::vector<int> late{};  // come when the others have given up
  std::vector<int> dead{};
  bool all_missing = false;
  int timeout = 100;  // ms
};

bool has(const std::vector<int>& ranks, int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

/// What the rank is told; and whether the group can be used on.
std::string come(int rank, ShmGroup group, Scene scene, std::vector<Event> gave_up) {
  Communicator ranks = group.join(rank);
  ranks.barrier();
  if (has(scene.dead, rank)) ::raise(SIGKILL);
  if (has(scene.late, rank))
    for (int other = 0; other < kWorld; ++other)
      if (!has(scene.late, other) && !has(scene.dead, other)) gave_up[std::size_t(other)].wait();
  std::string said = "all came";
  try {
    monitored_barrier(ranks, std::chrono::milliseconds(scene.timeout),
                      scene.all_missing ? MissingRanks::all : MissingRanks::first);
  } catch (const PeerDied& error) {
    said = std::string("PeerDied ") + error.what();
  } catch (const TimeoutError& error) {
    said = std::string("TimeoutError ") + error.what();
  }
  gave_up[std::size_t(rank)].set();
  if (!scene.dead.empty()) return said;
  // Nobody is waited for in vain a second time, and the rounds were never touched.
  monitored_barrier(ranks, std::chrono::minutes(2));
  at::Tensor one = at::ones({1});
  all_reduce(ranks, one);
  return said + fmt::format("; {}", one.item<float>());
}

std::vector<std::string> play(const Scene& scene) {
  ShmGroup group(kWorld);
  const std::vector<Event> gave_up(kWorld);
  std::vector<Process<std::string>> processes;
  for (int rank = 0; rank < kWorld; ++rank) {
    processes.emplace_back(ProcessOptions{}, come, rank, group, scene, gave_up);
    processes.back().start();
  }
  std::vector<std::string> said;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (has(scene.dead, rank))
      processes[std::size_t(rank)].join(), said.emplace_back();
    else
      said.push_back(processes[std::size_t(rank)].result());
  }
  return said;
}

}  // namespace

TEST_CASE("monitored barrier: it returns when all have come") {
  CHECK(play({.timeout = 120'000}) == std::vector<std::string>(kWorld, "all came; 4"));
}

TEST_CASE("monitored barrier: all ranks that did not come are named to all that did, who may try again") {
  for (bool all : {false, true})
    for (const std::string& said : play({.late = {1, 3}, .all_missing = all}))
      CHECK(said == "TimeoutError monitored_barrier: ranks 1, 3 did not come within 100 ms; 4");
}

TEST_CASE("monitored barrier: a rank that died is named; with the late ones where all are asked for") {
  auto said = play({.dead = {2}, .timeout = 120'000});
  for (int rank : {0, 1, 3})
    CHECK_THAT(said[std::size_t(rank)],
               ContainsSubstring("PeerDied monitored_barrier: rank 2 (process ") && ContainsSubstring("died"));
  said = play({.late = {1}, .dead = {2}, .all_missing = true, .timeout = 3000});
  for (int rank : {0, 1, 3})
    CHECK_THAT(said[std::size_t(rank)], ContainsSubstring("TimeoutError monitored_barrier: rank 2 (process ") &&
                                            ContainsSubstring("died; rank 1 did not come within 3000 ms"));
}

TEST_CASE("monitored barrier: that rank 0 does not come is what the others are told") {
  const auto said = play({.late = {0}});
  for (int rank : {1, 2, 3})
    CHECK(said[std::size_t(rank)] == "TimeoutError monitored_barrier: rank 0 did not come within 100 ms; 4");
  CHECK(said[0] == "all came; 4");  // they had
}

namespace {

std::string by_c10d(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  process_group->barrier()->wait();
  c10d::BarrierOptions options;
  options.timeout = std::chrono::milliseconds(50);
  if (rank == 1) {
    std::vector<at::Tensor> place{at::zeros({1})};
    process_group->recv(place, 0, 1)->wait();  // until the others have given up
    return "";
  }
  std::string said = "all came";
  try {
    process_group->monitoredBarrier(options, true);
  } catch (const TimeoutError& error) {
    said = error.what();
  }
  std::vector<at::Tensor> one{at::ones({1})};
  if (rank == 0) process_group->send(one, 1, 1)->wait();
  return said;
}

}  // namespace

TEST_CASE("monitored barrier: c10d's monitoredBarrier names who did not come") {
  ShmGroup group(2);
  Process<std::string> first({}, by_c10d, 0, group), second({}, by_c10d, 1, group);
  first.start();
  second.start();
  CHECK(first.result() == "monitored_barrier: rank 1 did not come within 50 ms");
  second.join();
}

}  // namespace monitored_barrier_test
