// Random collectives and messages, the same on all ranks. SHOAL_TEST_SCALE=100 for a campaign.
#include "tests/workers/train/backend/random_calls.h"

#include <ATen/Parallel.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/process_group.h>

#include <cstdint>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;

namespace random_calls_test {

namespace {

constexpr int kCalls = 120;

void work(int rank, ShmGroup group, std::uint64_t seed, Progress progress) {
  at::set_num_threads(1);
  const auto ranks = init_process_group(group, rank, {.progress = progress});
  test::random_calls(ranks, seed, kCalls, 1 << 19);
}

}  // namespace

TEST_CASE("random calls: every result is a plain loop's, and nothing is written beside it") {
  const Progress progress = GENERATE(Progress::in_call, Progress::thread);
  for (int round = 0; round < test::test_scale(); ++round)
    for (const int world : {1, 2, 3, 6}) {
      const std::uint64_t seed = std::uint64_t(round) * 10 + std::uint64_t(world);
      INFO("seed " << seed << ", " << world << " ranks");
      CHECK_NOTHROW(spawn({.nprocs = world}, work, ShmGroup(world), seed, progress));
    }
}

}  // namespace random_calls_test
