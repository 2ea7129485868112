#include <shoal/internal/runtime/os/lasting_thread.h>

#include <shoal/internal/ipc/fork/service_thread.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace shoal {
namespace {

TEST_CASE("lasting thread: the main thread does its work itself") {
  pid_t thread = 0;
  in_lasting_thread([&] { thread = ::gettid(); });
  CHECK(thread == ::getpid());
}

TEST_CASE("lasting thread: all others share one that stays") {
  std::atomic<pid_t> seen[3] = {};
  std::vector<std::thread> threads;
  for (auto& slot : seen) threads.emplace_back([&slot] { in_lasting_thread([&] { slot = ::gettid(); }); });
  for (auto& thread : threads) thread.join();
  CHECK(is_service_thread(seen[0]));
  CHECK(seen[0] != ::getpid());
  CHECK(seen[1] == seen[0]);
  CHECK(seen[2] == seen[0]);
}

TEST_CASE("lasting thread: exceptions come out of the call, and it goes on") {
  bool caught = false, ran = false;
  std::thread([&] {
    try {
      in_lasting_thread([] { throw std::domain_error("inside"); });
    } catch (const std::domain_error&) {
      caught = true;
    }
    in_lasting_thread([&] { ran = true; });
  }).join();
  CHECK(caught);
  CHECK(ran);
}

}  // namespace
}  // namespace shoal
