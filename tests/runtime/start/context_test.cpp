#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <vector>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

using std::chrono::milliseconds;

int work(int rank, Queue<int> ready, Queue<int> go) {
  ready.put(::getpid());
  go.get();
  return rank * rank;
}

TEST_CASE("context: join says whether all have returned, and then there are results") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4), go(4);
  auto context = start_processes({.nprocs = 3, .start_method = method}, work, ready, go);
  CHECK_FALSE(context.join(milliseconds(1)));
  std::vector<int> pids;
  for (int i = 0; i < 3; ++i) pids.push_back(ready.get());
  auto expected = context.pids();
  std::sort(pids.begin(), pids.end());
  std::sort(expected.begin(), expected.end());
  CHECK(pids == expected);
  for (int i = 0; i < 3; ++i) go.put(0);
  while (!context.join(milliseconds(50))) continue;
  CHECK(context.results() == std::vector{0, 1, 4});
  CHECK(context.results() == std::vector{0, 1, 4});
  CHECK(context.join(milliseconds(0)));
}

TEST_CASE("context: results waits for the ranks") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(2), go(2);
  auto context = start_processes({.nprocs = 2, .start_method = method}, work, ready, go);
  go.put(0);
  go.put(0);
  const auto same = context;
  CHECK(std::move(context).results() == std::vector{0, 1});
  auto again = same;
  CHECK_THROWS_WITH(again.results(), ContainsSubstring("were moved out before"));
}

TEST_CASE("context: a grace period given to join is used from then on") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4), go(4);
  auto deaf = [](int rank, Queue<int> to, Queue<int> until) {
    if (rank == 0) {
      to.put(1);
      until.get();
      throw std::runtime_error("first");
    }
    ::signal(SIGTERM, SIG_IGN);
    to.put(1);
    for (;;) ::pause();
  };
  auto context =
      start_processes({.nprocs = 2, .start_method = method, .grace_period = std::chrono::hours(1)}, deaf, ready, go);
  for (int i = 0; i < 2; ++i) ready.get();
  CHECK_FALSE(context.join(milliseconds(0), milliseconds(5)));
  go.put(1);
  CHECK_THROWS_AS(context.join(), ProcessRaised);
  CHECK(context.exitcodes() == std::vector<std::optional<int>>{1, -SIGKILL});
}

TEST_CASE("context: a copy is the same processes; sentinels tell each one's end") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4), go(4);
  auto context = start_processes({.nprocs = 2, .start_method = method}, work, ready, go);
  auto copy = context;
  for (int i = 0; i < 2; ++i) ready.get();
  for (const int sentinel : copy.sentinels()) CHECK_FALSE(is_readable(sentinel));
  for (int i = 0; i < 2; ++i) go.put(0);
  CHECK(copy.results() == std::vector{0, 1});
  CHECK(context.results() == std::vector{0, 1});
  for (const int sentinel : context.sentinels()) CHECK(is_readable(sentinel));
}

TEST_CASE("context: destroying it ends what runs") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(2), go(2);
  std::vector<Fd> watched;
  {
    auto context = start_processes({.nprocs = 2, .start_method = method}, work, ready, go);
    watched = test::watch({ready.get(), ready.get()});
  }
  for (const Fd& process : watched) CHECK(is_readable(process.get()));
}

}  // namespace
}  // namespace shoal
