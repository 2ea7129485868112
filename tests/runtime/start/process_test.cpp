#include <shoal/runtime/process.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/fd.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

using std::chrono::milliseconds;

int add(int a, int b) { return a + b; }

void wait_for_ever(Queue<int> ready) {
  ready.put(::getpid());
  for (;;) ::pause();
}

TEST_CASE("process: at its end destructors of the function run, exit handlers do not") {
  FOR_EACH_METHOD(method);
  static std::optional<Queue<std::string>> told;  // for the exit handler, which has no arguments
  Queue<std::string> ends(2);
  const auto leave_by = [](Queue<std::string> to, bool by_exception) {
    struct Last {
      Queue<std::string> to;
      ~Last() { to.put("destructor"); }
    } last{to};
    told = to;
    std::atexit([] { told->put("exit handler"); });
    if (by_exception) throw std::runtime_error("on purpose");
  };
  for (const bool by_exception : {false, true}) {
    Process process({.start_method = method}, leave_by, ends, by_exception);
    process.start();
    process.join();
    CHECK(ends.get() == "destructor");
    CHECK(ends.empty());
  }
}

TEST_CASE("process: wait() takes processes as they are, beside descriptors") {
  const auto wait_for = [](Event end) { end.wait(); };
  Event ends[2];
  std::vector<Process<void>> processes;
  for (Event& end : ends) processes.emplace_back(ProcessOptions{}, wait_for, end);
  CHECK_THROWS_WITH(wait(processes), ContainsSubstring("was not started"));
  for (auto& process : processes) process.start();
  CHECK(wait(processes, milliseconds(1)).empty());
  ends[1].set();
  CHECK(wait(processes) == std::vector<std::size_t>{1});
  PipeEnds bytes = make_pipe();
  const int descriptor = bytes.reading.get();
  CHECK(wait({processes[0], descriptor, processes[1]}) == std::vector<std::size_t>{2});
  ends[0].set();
  processes[0].join();
  bytes.writing.reset();
  CHECK(wait({processes[0], descriptor, processes[1]}) == std::vector<std::size_t>{0, 1, 2});
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

TEST_CASE("process: options can be left out") {
  Process added(add, 40, 2);
  CHECK(added.name() == ProcessOptions().name);
  Process answers([] { return 42; });
  Process any([](auto a, auto b) { return a + b; }, 40, 2);
  for (Process<int>* process : {&added, &answers, &any}) {
    process->start();
    CHECK(process->result() == 42);
  }
  const Process<int> same(added);  // a handle, and no callable
  CHECK(same.pid() == added.pid());
  Process handle = added;
  CHECK(handle.result() == 42);
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

TEST_CASE("process: a copy of a handle is the same process, and the last one ends it") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(1);
  std::optional<Process<void>> first(std::in_place, ProcessOptions{.start_method = method}, wait_for_ever, ready);
  Process<void> second = *first;
  first->start();
  CHECK(second.pid() == ready.get());
  const auto watched = test::watch({second.pid()});
  first.reset();
  CHECK(second.is_alive());
  second = Process<void>(ProcessOptions{.start_method = method}, wait_for_ever, ready);
  CHECK(is_readable(watched[0].get()));
}

TEST_CASE("process: handles may be copied, asked and dropped by several threads") {
  FOR_EACH_METHOD(method);
  Process process({.start_method = method}, add, 20, 3);
  process.start();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([copy = process, &right]() mutable {
      for (int round = 0; round < 50; ++round) {
        Process<int> another = copy;
        right += another.result() == 23;
        copy = std::move(another);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(right == 200);
}

TEST_CASE("process: what its arguments hold is not held by the handles of one that has ended") {
  FOR_EACH_METHOD(method);
  Pipe<int> pipe;
  Process process({.start_method = method}, [](Connection<int> end) { end.send(1); }, std::move(pipe.second));
  process.start();
  CHECK(pipe.first.recv() == 1);
  process.join();
  CHECK_THROWS_AS(pipe.first.recv(), EndOfFile);  // and does not wait for ever

  Pipe<int> other;
  auto context = start_processes(
      {.nprocs = 2, .start_method = method}, [](int rank, Connection<int> end) { end.send(rank); },
      std::move(other.second));
  context.join();
  CHECK(other.first.recv() + other.first.recv() == 1);
  CHECK_THROWS_AS(other.first.recv(), EndOfFile);
}

TEST_CASE("process: who its parent and its children are") {
  FOR_EACH_METHOD(method);
  CHECK_FALSE(parent_process());
  CHECK(CurrentProcess::pid() == ::getpid());
  Queue<int> ready(2);
  Event go;
  Process process(
      {.name = "son", .start_method = method},
      [](Queue<int> to, Event until) {
        Process grandson({.name = "grandson"}, [](Event end) { end.wait(); }, until);
        grandson.start();
        to.put(parent_process() ? parent_process()->pid : -1);
        to.put(current_process().pid());
        until.wait();
        grandson.join();
      },
      ready, go);
  process.start();
  CHECK(ready.get() == ::getpid());
  CHECK(ready.get() == process.pid());
  const auto children = active_children();
  REQUIRE(children.size() == 1);  // neither the fork server nor a child's child
  CHECK(children[0].name == "son");
  CHECK(children[0].pid == process.pid());
  CHECK(children[0].rank == -1);
  go.set();
  process.join();
  CHECK(active_children().empty());
  CHECK(get_all_start_methods().front() == StartMethod::forkserver);
  CHECK(get_all_start_methods().size() == 3);
}

TEST_CASE("process: close lets go of one that has ended, and of no other") {
  FOR_EACH_METHOD(method);
  Queue<int> ready(1);
  Process process({.name = "open", .start_method = method}, wait_for_ever, ready);
  process.start();
  ready.get();
  CHECK_THROWS_WITH(process.close(), ContainsSubstring("'open'") && ContainsSubstring("still runs"));
  process.kill();
  process.join();
  process.close();
  process.close();  // again: nothing
  CHECK_THROWS_AS(process.pid(), std::invalid_argument);
  CHECK_THROWS_WITH(process.exitcode(), ContainsSubstring("closed"));
}

TEST_CASE("process: one that is no daemon is waited for when its handle goes") {
  FOR_EACH_METHOD(method);
  Queue<int> done(1);
  {
    auto work = [](Queue<int> to) {
      std::this_thread::sleep_for(milliseconds(20));
      to.put(5);
    };
    Process process({.start_method = method, .daemon = false}, work, done);
    CHECK_FALSE(process.daemon());
    process.start();
  }
  CHECK(done.try_get() == 5);
}

TEST_CASE("process: ps shows program and rank or name") {
  FOR_EACH_METHOD(method);
  const std::string program = test::name_of(::getpid());
  auto look = [] { return test::name_of(::getpid()); };
  Process process({.name = "evaluator", .start_method = method}, look);
  process.start();
  CHECK(process.result() == program.substr(0, 5) + "/evaluator");
  auto look_rank = [](int) { return test::name_of(::getpid()); };
  CHECK(spawn({.nprocs = 2, .start_method = method}, look_rank)[1] == program.substr(0, 13) + "/1");
}

TEST_CASE("process: the start method that options do not name can be set, and children have their parent's") {
  FOR_EACH_METHOD(method);
  const StartMethod before = get_start_method();
  CHECK(before == StartMethod::forkserver);
  set_start_method(method);
  CHECK(ProcessOptions{}.start_method == method);
  Process process({}, [] { return int(get_start_method()); });
  set_start_method(before);
  process.start();
  CHECK(process.result() == int(before));
  set_start_method(method);
  CHECK(spawn({}, [](int) { return int(get_start_method()); }) == std::vector{int(method)});
  set_start_method(before);
}

TEST_CASE("process: results that can only be moved come as well") {
  Process process({}, [] { return std::make_unique<std::string>("alone"); });
  process.start();
  CHECK(*process.result() == "alone");
  CHECK_THROWS_WITH(process.result(), ContainsSubstring("was returned before"));
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
