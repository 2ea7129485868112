#include "tests/runtime/methods.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/pidfd.h>
#include <shoal/runtime/process.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shoal {
namespace {

using std::chrono::milliseconds;

int add(int a, int b) { return a + b; }

void wait_for_ever(Queue<int> ready) {
  ready.put(::getpid());
  for (;;) ::pause();
}

TEST_CASE("process: returns its result, as often as asked") {
  FOR_EACH_METHOD(method);
  Process process({.name = "adder", .start_method = method}, add, 40, 2);
  CHECK_FALSE(process.is_alive());
  CHECK_FALSE(process.exitcode());
  process.start();
  CHECK(process.result() == 42);
  CHECK(process.result() == 42);
  CHECK(process.exitcode() == 0);
  CHECK_FALSE(process.is_alive());
  CHECK(process.name() == "adder");
  process.join();
}

TEST_CASE("process: is alive until it is ended, by terminate or kill") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(1);
  Process terminated({.start_method = method}, wait_for_ever, ready);
  terminated.start();
  CHECK(ready.get() == terminated.pid());
  CHECK(terminated.is_alive());
  CHECK_FALSE(terminated.join(milliseconds(0)));
  CHECK_FALSE(is_readable(terminated.sentinel()));
  CHECK_FALSE(terminated.exitcode());
  terminated.terminate();
  terminated.join();
  CHECK(terminated.exitcode() == -SIGTERM);
  CHECK(is_readable(terminated.sentinel()));
  CHECK_FALSE(terminated.is_alive());
  terminated.terminate();  // to nobody

  Process killed({.start_method = method}, wait_for_ever, ready);
  killed.start();
  ready.get();
  killed.kill();
  CHECK(killed.join(std::chrono::seconds(30)));
  CHECK(killed.exitcode() == -SIGKILL);
  CHECK_THROWS_AS(killed.result(), ProcessExited);
}

TEST_CASE("process: its failure is told by exitcode and result, not by join") {
  FOR_EACH_METHOD(method);
  Process process({.name = "thrower", .start_method = method}, [] { throw std::out_of_range("9 of 3"); });
  process.start();
  process.join();
  CHECK(process.exitcode() == 1);
  CHECK_THROWS_WITH(process.result(),
                    StartsWith("process 'thrower' (pid ") && EndsWith("raised std::out_of_range: 9 of 3"));
  Process leaver({.start_method = method}, [] { ::_exit(3); });
  leaver.start();
  leaver.join();
  CHECK(leaver.exitcode() == 3);
}

TEST_CASE("process: destroying the handle ends the process") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(1);
  std::vector<Fd> watched;
  {
    Process process(
        {.start_method = method, .grace_period = milliseconds(20)},
        [](Queue<int> to) {
          ::signal(SIGTERM, SIG_IGN);
          wait_for_ever(to);
        },
        ready);
    process.start();
    watched = test::watch({ready.get()});
  }
  CHECK(is_readable(watched[0].get()));
}

TEST_CASE("process: handles move, and what they are assigned over is ended") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(2);
  std::vector<Process<void>> processes;
  for (int i = 0; i < 2; ++i) {
    processes.emplace_back(ProcessOptions{.start_method = method}, wait_for_ever, ready);
    processes.back().start();
    ready.get();
  }
  const auto watched = test::watch({processes[0].pid(), processes[1].pid()});
  {
    auto taken = std::move(processes[0]);
    CHECK_THROWS_AS(processes[0].pid(), std::invalid_argument);
    processes[1] = std::move(taken);
  }
  CHECK(is_readable(watched[1].get()));
  CHECK_FALSE(is_readable(watched[0].get()));
}

TEST_CASE("process: misuse is refused by name") {
  FOR_EACH_METHOD(method);
  Process process({.name = "once", .start_method = method}, add, 1, 2);
  CHECK_THROWS_AS(process.pid(), std::invalid_argument);
  CHECK_THROWS_WITH(process.join(), ContainsSubstring("'once'") && ContainsSubstring("start()"));
  process.start();
  CHECK_THROWS_AS(process.start(), std::invalid_argument);
  process.join();
  CHECK_THROWS_WITH(process.start(), ContainsSubstring("'once'"));
}

TEST_CASE("process: may be joined, asked and killed by several threads") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(1);
  Process process({.start_method = method, .fork_despite_threads = true}, wait_for_ever, ready);
  process.start();
  ready.get();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      process.join();
      right += process.exitcode() == -SIGKILL;
    });
  process.kill();
  for (auto& thread : threads) thread.join();
  CHECK(right == 3);
}

TEST_CASE("process: results that can only be moved come as well") {
  Process process({}, [] { return std::make_unique<std::string>("alone"); });
  process.start();
  CHECK(*process.result() == "alone");
}

TEST_CASE("process: what it has printed comes out, also without a line end") {
  FOR_EACH_METHOD(method);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Fd reading(ends[0]), writing(ends[1]);
  auto print = [](const std::string& path) {
    if (!std::freopen(path.c_str(), "w", stdout)) return;
    std::printf("buffered");
  };
  Process process({.start_method = method}, print, fmt::format("/proc/{}/fd/{}", ::getpid(), writing.get()));
  process.start();
  process.join();
  writing.reset();
  char text[16] = "";
  CHECK(::read(reading.get(), text, sizeof text) == 8);
  CHECK(std::string(text) == "buffered");
}

}  // namespace
}  // namespace shoal
