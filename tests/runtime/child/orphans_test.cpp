#include <shoal/internal/ipc/process/liveness.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

enum class Stubborn {
  kWaits,
  kIgnoresSigterm,
  kIsStopped,
  kBlocksInQueue,
  kLeavesGroup,
  kComputes,
  kBlocksInWrite,
  kBlocksInFutex
};

void be_stubborn(Stubborn how, Queue<int> pids) {
  Queue<int> empty(1);
  if (how == Stubborn::kIgnoresSigterm) {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
  }
  if (how == Stubborn::kLeavesGroup) ::setsid();
  pids.put(::getpid());
  if (how == Stubborn::kIsStopped) ::raise(SIGSTOP);
  if (how == Stubborn::kBlocksInQueue) empty.get();
  if (how == Stubborn::kBlocksInWrite) test::block_in_write();
  if (how == Stubborn::kBlocksInFutex) test::block_in_futex();
  if (how == Stubborn::kComputes)
    for (std::atomic<unsigned> spin = 0;; ++spin) continue;
  for (;;) ::pause();
}

constexpr Stubborn kAll[] = {Stubborn::kWaits,         Stubborn::kIgnoresSigterm, Stubborn::kIsStopped,
                             Stubborn::kBlocksInQueue, Stubborn::kLeavesGroup,    Stubborn::kComputes,
                             Stubborn::kBlocksInWrite, Stubborn::kBlocksInFutex};

/// What ends the parent, where it is no signal from outside.
enum class ParentEnd { kCrashes = 1, kExecutes = 2 };

/// Starts children by one method and waits with them for its end.
void parent_of_all(StartMethod method, Queue<int> pids, Queue<ParentEnd> ends) {
  std::vector<Process<void>> children;
  for (Stubborn how : kAll) {
    children.emplace_back(ProcessOptions{.start_method = method}, be_stubborn, how, pids);
    children.back().start();
  }
  test::wait_until_stopped(children[2].pid());
  test::wait_until_in_system_call(children[6].pid(), SYS_write);
  test::wait_until_in_system_call(children[7].pid(), SYS_futex);
  pids.put(0);
  if (ends.get() == ParentEnd::kCrashes) std::abort();
  ::execl("/bin/sleep", "sleep", "600", static_cast<char*>(nullptr));
}

/// Reads until `count` pids and `zeros` zeros have come, in whatever order.
std::vector<pid_t> read_pids(Queue<int>& pids, std::size_t count, int zeros) {
  std::vector<pid_t> result;
  while (result.size() < count || zeros > 0) {
    if (int pid = pids.get())
      result.push_back(pid);
    else
      --zeros;
  }
  return result;
}

TEST_CASE("orphans: when a parent is gone, all its children are gone within two seconds, whatever they do") {
  FOR_EACH_METHOD(method);
  const auto parents_method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(parents_method));
  Queue<int> pids(16);
  Queue<ParentEnd> ends(1);
  Process parent({.start_method = parents_method}, parent_of_all, method, pids, ends);
  parent.start();
  const auto orphans = test::watch(read_pids(pids, std::size(kAll), 1));
  SECTION("by SIGKILL") { parent.kill(); }
  SECTION("by SIGTERM") { parent.terminate(); }
  SECTION("by a crash of its own") { ends.put(ParentEnd::kCrashes); }
  SECTION("by executing another program in its place") { ends.put(ParentEnd::kExecutes); }
  CHECK(test::all_end(orphans));
  parent.kill();  // the other program lives
  parent.join();
}

/// Three levels, two children each, by all methods.
void tree(int depth, Queue<int> pids) {
  pids.put(::getpid());
  std::vector<Process<void>> children;
  for (auto method : {StartMethod::spawn, StartMethod::forkserver, StartMethod::fork}) {
    if (depth == 0) break;
    children.emplace_back(ProcessOptions{.start_method = method}, tree, depth - 1, pids);
    children.back().start();
  }
  pids.put(0);
  for (;;) ::pause();
}

TEST_CASE("orphans: a whole tree goes with its root, and its memory comes back") {
  Queue<int> pids(64);
  Process root({.start_method = StartMethod::spawn}, tree, 2, pids);
  root.start();
  const auto all = test::watch(read_pids(pids, 1 + 3 + 9, 1 + 3 + 9));
  root.kill();
  CHECK(test::all_end(all));
  root.join();  // the leak guard looks at the heap
}

TEST_CASE("orphans: a parent that returns takes with it children that it did not wait for") {
  FOR_EACH_METHOD(method);
  Queue<int> pids(4);
  auto careless = [](StartMethod by, Queue<int> to) {
    auto* child = new Process<void>(ProcessOptions{.start_method = by}, be_stubborn, Stubborn::kIgnoresSigterm, to);
    child->start();
  };
  Process parent({.start_method = StartMethod::forkserver}, careless, method, pids);
  // Its pid may be read after its end; that it ends is all there is to see.
  parent.start();
  parent.join();
  CHECK(parent.exitcode() == 0);
  while (auto pid = pids.try_get()) CHECK(process_start_time(*pid) == 0);  // gone, or dead and not yet reaped
}

TEST_CASE("orphans: children outlive the thread that started them") {
  FOR_EACH_METHOD(method);
  Queue<int> pids(4);
  Process process({.start_method = method, .fork_despite_threads = true}, be_stubborn, Stubborn::kWaits, pids);
  std::thread([&] { process.start(); }).join();
  pids.get();
  const auto watched = test::watch({process.pid()});
  CHECK(process.is_alive());
  // The thread is gone for sure; a wrong parent-death signal would have been sent before join returned.
  CHECK_FALSE(process.join(std::chrono::milliseconds(0)));
  process.kill();
  process.join();
}

TEST_CASE("orphans: children of another thread's die with their process") {
  FOR_EACH_METHOD(method);
  Queue<int> pids(8);
  auto threaded = [](StartMethod by, Queue<int> to) {
    std::optional<Process<void>> child;
    std::thread([&] {
      child.emplace(ProcessOptions{.start_method = by, .fork_despite_threads = true}, be_stubborn, Stubborn::kIsStopped,
                    to);
      child->start();
    }).join();
    test::wait_until_stopped(child->pid());
    to.put(0);
    for (;;) ::pause();
  };
  Process parent({}, threaded, method, pids);
  parent.start();
  const auto orphans = test::watch(read_pids(pids, 1, 1));
  parent.kill();
  CHECK(test::all_end(orphans));
  parent.join();
}

}  // namespace
}  // namespace shoal
