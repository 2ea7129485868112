// What ranks ask of the kernel while they wait for others.
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/session.h>
#include <shoal/workers/train/communicator.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "tests/ipc/sync/fixtures.h"
#include "tests/support/sleeps.h"

using namespace shoal;
using namespace shoal::test;

namespace waiting_test {

TEST_CASE("group: of many ranks that wait for many one asks after the dead") {
  constexpr int kHalf = 8;
  ShmGroup group(2 * kHalf);
  Semaphore joined{0};
  std::vector<std::unique_ptr<Forked>> late, waiting;
  for (int rank = 0; rank < kHalf; ++rank)
    late.push_back(std::make_unique<Forked>([&] {
      Communicator ranks = group.join(rank);
      joined.release();
      for (;;) ::pause();
    }));
  for (int rank = 0; rank < kHalf; ++rank) joined.acquire();
  for (int rank = kHalf; rank < 2 * kHalf; ++rank)
    waiting.push_back(std::make_unique<Forked>([&] {
      Communicator ranks = group.join(rank);
      try {
        ranks.barrier();
      } catch (const PeerDied&) {
        return;
      }
      throw Error("the barrier was passed");
    }));
  for (auto& rank : waiting) until_asleep(*rank);
  auto sleeps = [&] {
    long sum = 0;
    for (auto& rank : waiting) sum += sleeps_of(*rank);
    return sum;
  };
  const SessionLayout& layout = SessionCore::current().layout();
  const long sleeps_before = sleeps();
  const std::uint64_t looks_before = layout.looks, questions_before = layout.liveness_questions;
  until([&] { return sleeps() >= sleeps_before + 20 * kHalf; });
  const std::uint64_t looks = layout.looks - looks_before;
  const std::uint64_t questions = layout.liveness_questions - questions_before;
  // Each look asks for every process but its own.
  CHECK(questions <= (looks + 1) * 2 * kHalf);
  CHECK(looks > 0);
  late[3]->kill();
  for (auto& rank : waiting) CHECK(rank->join() == 0);
}

}  // namespace waiting_test
