#include <shoal/runtime/stop.h>

#include <shoal/internal/ipc/process/liveness.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/start/methods.h"
#include "tests/support/forked.h"

namespace shoal {
namespace {

constexpr std::chrono::seconds kLong{60};

/// Works until it is told to stop, then saves what it has.
int work_until_stopped(int rank, Queue<int> ready, Queue<std::string> saved) {
  (void)stop_requested();
  ready.put(rank);
  while (!stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  saved.put("rank " + std::to_string(rank));
  return rank + 1;
}

int never_ask(int rank, Queue<int> ready) {
  ready.put(rank);
  for (;;) ::pause();
}

TEST_CASE("stop: a rank that asks is told, and what it then returns counts") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4);
  Queue<std::string> saved(4);
  auto context = start_processes({.nprocs = 2, .start_method = method}, work_until_stopped, ready, saved);
  for (int i = 0; i < 2; ++i) ready.get();
  context.terminate();
  CHECK(context.results() == std::vector{1, 2});
  CHECK(saved.get() + saved.get() != "");
}

TEST_CASE("stop: one that never asks is ended by the first SIGTERM, which is a failure") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4);
  auto context = start_processes({.nprocs = 2, .start_method = method, .grace_period = kLong}, never_ask, ready);
  for (int i = 0; i < 2; ++i) ready.get();
  CHECK(context.exitcodes() == std::vector<std::optional<int>>{std::nullopt, std::nullopt});
  context.terminate();
  CHECK_THROWS_AS(context.join(), ProcessExited);
  CHECK(context.exitcodes() == std::vector<std::optional<int>>{-SIGTERM, -SIGTERM});
}

void lead_ranks(StartMethod method, Queue<int> ready, Queue<std::string> saved) {
  spawn({.nprocs = 2, .start_method = method, .grace_period = kLong}, work_until_stopped, ready, saved);
}

TEST_CASE("stop: SIGTERM to a process that waits for ranks lets them save, then ends it") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4);
  Queue<std::string> saved(4);
  Process leader({.start_method = method, .grace_period = kLong}, lead_ranks, method, ready, saved);
  leader.start();
  for (int i = 0; i < 2; ++i) ready.get();
  leader.terminate();
  leader.join();
  CHECK(leader.exitcode() == -SIGTERM);
  CHECK(saved.get() + saved.get() != "");
}

}  // namespace

/// Asks its process to stop when it is encoded: while the ranks are being started.
struct StopsWhoEncodesIt {};

template <>
struct Codec<StopsWhoEncodesIt> {
  static constexpr std::uint64_t schema() { return schema_hash("StopsWhoEncodesIt"); }
  static void encode(Encoder&, StopsWhoEncodesIt) {
    if (stop_requests() == 0) ::raise(SIGTERM);
  }
  static StopsWhoEncodesIt decode(Decoder&) { return {}; }
};

namespace {

TEST_CASE("stop: SIGTERM while the ranks of a spawn are being started ends them, too") {
  Process leader({.grace_period = kLong}, [] {
    const auto work = [](int, StopsWhoEncodesIt) {
      while (!stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    spawn({.nprocs = 2, .start_method = StartMethod::spawn, .grace_period = kLong}, work, StopsWhoEncodesIt());
  });
  leader.start();
  leader.join();
  CHECK(leader.exitcode() == -SIGTERM);
}

TEST_CASE("stop: a process that asks itself goes on when its ranks have ended") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4);
  Queue<std::string> saved(4);
  auto lead = [](StartMethod by, Queue<int> to, Queue<std::string> text) {
    (void)stop_requested();
    int sum = stop_requested() ? 100 : 0;
    for (int part : spawn({.nprocs = 2, .start_method = by, .grace_period = kLong}, work_until_stopped, to, text))
      sum += part;
    return stop_requested() ? sum : -1;
  };
  Process leader({.start_method = method}, lead, method, ready, saved);
  leader.start();
  for (int i = 0; i < 2; ++i) ready.get();
  leader.terminate();
  CHECK(leader.result() == 3);
}

TEST_CASE("stop: ranks that do not heed are ended after the grace period") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4);
  auto lead = [](StartMethod by, Queue<int> to) {
    (void)stop_requested();
    auto deaf = [](int rank, Queue<int> here) {
      ::signal(SIGTERM, SIG_IGN);
      never_ask(rank, here);
    };
    auto context =
        start_processes({.nprocs = 2, .start_method = by, .grace_period = std::chrono::milliseconds(20)}, deaf, to);
    try {
      context.join();
    } catch (const ProcessExited& failure) {
      return failure.signal();
    }
    return 0;
  };
  Process leader({.start_method = method}, lead, method, ready);
  leader.start();
  for (int i = 0; i < 2; ++i) ready.get();
  leader.terminate();
  CHECK(leader.result() == SIGKILL);
}

volatile sig_atomic_t own_handler_calls = 0;

TEST_CASE("stop: the program's own handler is kept while it waits, and called when it asks") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4);
  const bool asks = GENERATE(false, true);
  auto lead = [](StartMethod by, Queue<int> to, bool ask) {
    own_handler_calls = 0;
    ::signal(SIGTERM, [](int) { own_handler_calls = own_handler_calls + 1; });
    if (ask) (void)stop_requested();
    auto context = start_processes({.nprocs = 1, .start_method = by}, never_ask, to);
    while (own_handler_calls == 0) {
      try {
        if (context.join(std::chrono::milliseconds(5))) return -1;
      } catch (const ProcessExited&) {
        break;  // it was passed on, since the process asks
      }
    }
    const bool still_runs = !context.exitcodes()[0];
    context.kill();
    return own_handler_calls * 10 + (stop_requested() ? 1 : 0) + (still_runs && !ask ? 2 : 0);
  };
  Process leader({.start_method = method, .grace_period = kLong}, lead, method, ready, asks);
  leader.start();
  ready.get();
  leader.terminate();
  CHECK(leader.result() == (asks ? 11 : 12));
}

TEST_CASE("stop: Ctrl-C ends the ranks in order, then the program; a second one at once") {
  FOR_EACH_METHOD(method);
  const bool twice = GENERATE(false, true);
  CAPTURE(twice);
  Queue<int> ready(4);
  Queue<std::string> saved(4);
  test::Forked root([&] {
    ::signal(SIGINT, SIG_DFL);
    auto deaf = [](int rank, Queue<int> to, Queue<std::string>) {
      ::signal(SIGTERM, SIG_IGN);
      return never_ask(rank, to);
    };
    const SpawnOptions options{.nprocs = 2, .start_method = method, .grace_period = kLong};
    if (twice)
      spawn(options, deaf, ready, saved);
    else
      spawn(options, work_until_stopped, ready, saved);
  });
  for (int i = 0; i < 2; ++i) ready.get();
  root.signal(SIGINT);
  if (twice) root.signal(SIGINT);
  // Two at once may arrive as one.
  while (twice && process_start_time(root.pid()) != 0) {
    root.signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(root.join() == -SIGINT);
  if (!twice) CHECK(saved.get() + saved.get() != "");
}

TEST_CASE("stop: a second Ctrl-C ends the wait for ranks that are told to end because another one failed") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(4), go(4);
  test::Forked root([&] {
    ::signal(SIGINT, SIG_DFL);
    auto fails_or_is_deaf = [](int rank, Queue<int> to, Queue<int> until) {
      if (rank == 0) {
        until.get();  // the other one is deaf by then
        throw std::runtime_error("the first to fail");
      }
      ::signal(SIGTERM, SIG_IGN);
      return never_ask(rank, to);
    };
    spawn({.nprocs = 2, .start_method = method, .grace_period = std::chrono::hours(1)}, fails_or_is_deaf, ready, go);
  });
  ready.get();
  go.put(0);
  while (process_start_time(root.pid()) != 0) {
    root.signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(root.join() == -SIGINT);
}

/// A worker's life: notes what it is asked, and says each time that it was.
void be_told(const std::atomic<std::uint64_t>& end, Queue<int> noted, bool asks) {
  const StopWhenTold told(end);
  if (asks) (void)stop_requested();
  noted.put(0);
  {
    const HeldStop waits_for_a_child_of_its_own;
  }
  for (int seen = 0;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    if (stop_requests() != seen) noted.put(seen = stop_requests());
    if (asks && end.load() != 0 && seen == 2) return;
  }
}

TEST_CASE(
    "stop: a worker that is to end when told notes SIGTERM, until it is told; then that ends it, unless it asks") {
  const bool asks = GENERATE(false, true);
  CAPTURE(asks);
  Queue<int> noted(4);
  const Hold memory = allocate_shared(sizeof(std::atomic<std::uint64_t>));
  auto& end = *new (memory.data()) std::atomic<std::uint64_t>(0);
  test::Forked worker([&] { be_told(end, noted, asks); });
  CHECK(noted.get() == 0);
  worker.signal(SIGTERM);
  CHECK(noted.get() == 1);
  end = 1;
  worker.signal(SIGTERM);
  CHECK(worker.join() == (asks ? 0 : -SIGTERM));
  if (asks) CHECK(noted.get() == 2);
}

TEST_CASE("stop: a worker that is told no longer notes SIGTERM and goes on to its end") {
  test::Forked worker([&] {
    std::atomic<std::uint64_t> end{1};
    {
      const StopWhenTold told(end);
    }
    ::raise(SIGTERM);
    if (!stop_requested()) throw std::runtime_error("not told");
  });
  CHECK(worker.join() == 0);
}

TEST_CASE("stop: a worker's own handler stays and is called, whether it is told to end or not") {
  test::Forked worker([&] {
    own_handler_calls = 0;
    ::signal(SIGTERM, [](int) { own_handler_calls = own_handler_calls + 1; });
    std::atomic<std::uint64_t> end{1};
    const StopWhenTold told(end);
    ::raise(SIGTERM);
    if (own_handler_calls != 1) throw std::runtime_error("not called");
  });
  CHECK(worker.join() == 0);
}

TEST_CASE("stop: a fork does not inherit what its parent was asked") {
  test::Forked root([&] {
    (void)stop_requested();
    ::raise(SIGTERM);
    if (!stop_requested()) throw std::runtime_error("not told");
    if (spawn({.start_method = StartMethod::fork}, [](int) { return stop_requested(); })[0])
      throw std::runtime_error("inherited");
  });
  CHECK(root.join() == 0);
}

}  // namespace
}  // namespace shoal
