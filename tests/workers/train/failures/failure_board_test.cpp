// Where the ranks of a host tell each other what went wrong: what stays, and who may tell.
#include <shoal/internal/workers/train/failures/failure_board.h>

#include <shoal/internal/ipc/process/session.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/catch.h"

using namespace shoal;

namespace failure_board_test {

TEST_CASE("FailureBoard: the first failure stays, for all ranks") {
  const FailureBoard::Block block = FailureBoard::make(2);
  FailureBoard first(block, 0), second(block, 1);
  CHECK(!first.has_failed());
  CHECK(first.write_first([] { return Failure{Failure::died, "rank 3 died", 3}; }).text == "rank 3 died");
  const Failure there = second.write_first([]() -> Failure { throw std::logic_error("asked, though one is there"); });
  CHECK(there.kind == Failure::died);
  CHECK(there.text == "rank 3 died");
  CHECK(there.rank == 3);
}

TEST_CASE("FailureBoard: a rank that cannot find out what failed leaves the telling to the next one") {
  const FailureBoard::Block block = FailureBoard::make(2);
  FailureBoard first(block, 0), second(block, 1);
  for (FailureBoard* board : {&first, &second}) board->enter(Session::current().self().word());
  std::thread waits;
  std::string seen;
  CHECK_THROWS_AS(first.write_first([&]() -> Failure {
    waits =
        std::thread([&] { seen = second.write_first([] { return Failure{Failure::aborted, "by the second"}; }).text; });
    while (!second.has_failed()) std::this_thread::yield();
    throw std::runtime_error("no memory");
  }),
                  std::runtime_error);
  waits.join();
  CHECK(seen == "by the second");
  CHECK(first.read()->text == "by the second");
}

}  // namespace failure_board_test
