#include "tests/runtime/methods.h"

#include <shoal/ipc/queue.h>
#include <shoal/runtime/pidfd.h>
#include <shoal/runtime/spawn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

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
  CHECK(std::move(context).results() == std::vector{0, 1});
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
