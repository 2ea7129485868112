// A group that one rank aborts, from whatever thread: whoever waits in it is told, and nobody can go on with it.
#include <ATen/ATen.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/process_group.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace abort_test {

namespace {

template <class Call>
std::string said_by(const Call& call) {
  try {
    call();
  } catch (const PeerDied&) {
    return "a death";
  } catch (const TimeoutError&) {
    return "a time-out";
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

/// Rank 0 and 1 are in a collective that rank 2 does not call; rank 1 aborts it by another thread.
std::vector<std::string> abort_from_outside(int rank, ShmGroup group, Progress progress, Event in_call, Barrier met) {
  auto ranks = init_process_group(group, rank, {.progress = progress});
  std::vector<at::Tensor> one{at::ones({1000})};
  ranks->allreduce(one)->wait();
  met.wait();  // who is still in the first one when the group is aborted is told there
  std::vector<std::string> said;
  std::thread other;
  if (rank == 0) in_call.set();
  if (rank == 1)
    other = std::thread([&] {
      in_call.wait();
      ranks->getBackend(c10::kCPU)->abort();
    });
  if (rank != 2) said.push_back(said_by([&] { ranks->allreduce(one)->wait(); }));
  if (rank == 2) said.push_back(said_by([&] { ranks->recv(one, 1, 3)->wait(); }));
  said.push_back(said_by([&] { ranks->barrier()->wait(); }));
  said.push_back(said_by([&] { ranks->send(one, (rank + 1) % 3, 4)->wait(); }));
  if (other.joinable()) other.join();
  return said;
}

}  // namespace

TEST_CASE("abort: a rank that aborts the group ends what all are in, and all that they call later") {
  for (Progress progress : {Progress::in_call, Progress::thread}) {
    const auto said = spawn({.nprocs = 3}, abort_from_outside, ShmGroup(3), progress, Event(), Barrier(3));
    CHECK_THAT(said[0][0], ContainsSubstring("all_reduce: rank 1 (process ") && ContainsSubstring("aborted the group"));
    CHECK_THAT(said[1][0], ContainsSubstring("aborted the group"));
    CHECK_THAT(said[2][0], ContainsSubstring("recv of 4000 bytes") && ContainsSubstring("rank 1 (process ") &&
                               ContainsSubstring("aborted the group"));
    for (const auto& rank : said) CHECK_THAT(rank[1], ContainsSubstring("aborted the group"));
    CHECK_THAT(said[0][2], ContainsSubstring("rank 1 (process ") && ContainsSubstring("aborted the group"));
    CHECK_THAT(said[1][2], ContainsSubstring("aborted the group"));
  }
}

}  // namespace abort_test
