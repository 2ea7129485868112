#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/hooks.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/start/methods.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

namespace shoal {
namespace {

int preloads = 0;
int threads_set = 0;

// Where layers above register: before main, in this program and so in its fork server too.
const bool registered = [] {
  register_preload([] { ++preloads; });
  register_thread_setter([](int threads) { threads_set = threads; });
  return true;
}();

TEST_CASE("fork server: its children find the preloading done") {
  CHECK(spawn({.nprocs = 2}, [](int) { return preloads; }) == std::vector{1, 1});
  CHECK(spawn({.start_method = StartMethod::spawn}, [](int) { return preloads; }) == std::vector{0});
}

TEST_CASE(
    "fork server: one that hangs does not keep a process from ending that is asked to stop, and serves others then") {
  const pid_t pid = start_fork_server();
  const Fd server = open_pidfd(pid);
  send_signal(server, SIGSTOP);
  for (std::string stat; stat.find(") T ") == std::string::npos;) {  // the root's request comes after that
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::getline(file, stat);
  }
  Queue<int> ready(1);
  test::Forked root([&] {  // asks the same server
    ready.put(0);
    spawn({.start_method = StartMethod::forkserver}, [](int) { ::pause(); });
  });
  ready.get();
  ::usleep(50'000);  // it waits for the server by then; if not, it ends all the same
  root.signal(SIGTERM);
  CHECK(root.join() == -SIGTERM);
  send_signal(server, SIGCONT);
  CHECK(spawn({.start_method = StartMethod::forkserver}, [](int) { return 1; }) == std::vector{1});
}

TEST_CASE("fork server: layers above are told the number of threads, with every method") {
  FOR_EACH_METHOD(method);
  CHECK(spawn({.start_method = method, .num_threads = 3}, [](int) { return threads_set; }) == std::vector{3});
}

/// Children of the fork server.
std::vector<pid_t> forked(pid_t server) {
  std::vector<pid_t> result;
  std::ifstream children("/proc/" + std::to_string(server) + "/task/" + std::to_string(server) + "/children");
  for (pid_t pid = 0; children >> pid;) result.push_back(pid);
  return result;
}

std::vector<pid_t> wait_for_spares(pid_t server, std::size_t count) {
  for (;;) {
    const auto children = forked(server);
    if (children.size() == count) return children;
    std::this_thread::yield();
  }
}

/// Until it waits for somebody to ask for something, having no more to do while nobody does. Where the kernel does not
/// tell, at once.
void wait_until_idle(pid_t server) {
#ifdef SYS_poll
  for (;;) {
    std::ifstream file("/proc/" + std::to_string(server) + "/syscall");
    std::string number, descriptors, count, timeout;
    if (!(file >> number)) return;
    if (number == std::to_string(SYS_poll) && file >> descriptors >> count >> timeout && timeout.ends_with("ffffffff"))
      return;
    std::this_thread::yield();
  }
#else
  (void)server;
#endif
}

/// Its spares, once it has nothing to do any more: those that it made beside a child it ends when that is gone and it
/// freezes its heap.
std::vector<pid_t> lasting_spares(pid_t server, std::size_t count) {
  wait_for_spares(server, count);
  wait_until_idle(server);
  return wait_for_spares(server, count);
}

// UBSan opens /proc/self/maps to look at a type, and takes the want of a descriptor for a bad object.
#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("fork server: a spare that cannot be made is made when there is room again") {
  const pid_t server = start_fork_server({.spares = 2});
  const auto spares = lasting_spares(server, 2);
  rlimit before;
  REQUIRE(::prlimit(server, RLIMIT_NOFILE, nullptr, &before) == 0);
  const rlimit none{3, before.rlim_max};
  REQUIRE(::prlimit(server, RLIMIT_NOFILE, &none, nullptr) == 0);
  send_signal(open_pidfd(spares[0]), SIGKILL);
  wait_for_spares(server, 1);
  wait_until_idle(server);
  CHECK(forked(server).size() == 1);
  REQUIRE(::prlimit(server, RLIMIT_NOFILE, &before, nullptr) == 0);
  CHECK(spawn({}, [](int) { return 1; }) == std::vector{1});
  wait_for_spares(server, 2);
}
#endif

TEST_CASE("fork server: keeps spares, gives them out first and makes new ones") {
  const pid_t server = start_fork_server({.spares = 3});
  const auto spares = lasting_spares(server, 3);
  // It takes the name itself, a moment after it is there; the test's watchdog ends a wait that has no end.
  while (test::name_of(spares[0]) != test::name_of(::getpid()).substr(0, 9) + "/spare") std::this_thread::yield();
  Queue<int> ready(4), go(4);
  auto hold = [](int, Queue<int> to, Queue<int> until) {
    to.put(::getpid());
    return until.get();
  };
  auto context = start_processes({.nprocs = 4, .start_method = StartMethod::forkserver}, hold, ready, go);
  for (int i = 0; i < 4; ++i) ready.get();
  const auto pids = context.pids();
  for (const pid_t spare : spares) CHECK(std::count(pids.begin(), pids.end(), spare) == 1);
  wait_for_spares(server, 7);
  for (int i = 0; i < 4; ++i) go.put(i);
  context.join();
  const auto fresh = lasting_spares(server, 3);

  SECTION("one that dies is replaced") {
    send_signal(open_pidfd(fresh[0]), SIGKILL);
    while (forked(server).back() == fresh[2]) std::this_thread::yield();
    wait_for_spares(server, 3);
  }
  SECTION("one that dies while it is given out is reported as any other") {
    // Stopped, it cannot even begin.
    for (const pid_t spare : fresh) send_signal(open_pidfd(spare), SIGSTOP);
    Process process({}, [] {});
    process.start();
    process.kill();
    process.join();
    CHECK(process.exitcode() == -SIGKILL);
    CHECK_THROWS_WITH(process.result(), ContainsSubstring("right after it was forked"));
  }
  SECTION("they go when fewer are wanted") {
    CHECK(start_fork_server({.spares = 1}) == server);
    wait_for_spares(server, 1);
  }
  start_fork_server({.spares = 0});
  wait_for_spares(server, 0);
  CHECK(spawn({.nprocs = 2}, [](int rank) { return rank; }) == std::vector{0, 1});
  start_fork_server({});
  wait_for_spares(server, 2);
  CHECK_THROWS_AS(start_fork_server({.spares = -1}), std::invalid_argument);
  CHECK_THROWS_WITH(start_fork_server({.spares = 1000}), ContainsSubstring("spares is 1000"));
}

TEST_CASE("fork server: starts that it does not answer because it dies are made again, by a new one") {
  const pid_t server = start_fork_server();
  const Fd process = std::move(test::watch({server})[0]);
  send_signal(process, SIGSTOP);
  test::wait_until_stopped(server);
  std::thread killer([&] {
    // When both requests are on their way, or before: either way they are made again.
    std::this_thread::yield();
    send_signal(process, SIGKILL);
  });
  const auto results = spawn(
      {.nprocs = 2, .start_method = StartMethod::forkserver},
      [](int rank, std::string text) { return text + std::to_string(rank); }, std::string("again "));
  killer.join();
  CHECK(results == std::vector<std::string>{"again 0", "again 1"});
  CHECK(start_fork_server() != server);
  test::allow_child(start_fork_server());
}

TEST_CASE("fork server: a worker whose server died makes its own") {
  Queue<int> ready(1), go(1);
  auto work = [](Queue<int> to, Queue<int> until) {
    to.put(1);
    until.get();
    return spawn({.nprocs = 2, .start_method = StartMethod::forkserver}, [](int rank) { return rank + 1; });
  };
  Process worker({.start_method = StartMethod::spawn}, work, ready, go);
  worker.start();
  ready.get();
  const auto watched = test::watch({start_fork_server()});
  send_signal(watched[0], SIGKILL);
  CHECK(test::all_end(watched));
  go.put(1);
  CHECK(worker.result() == std::vector{1, 2});
  spawn({}, [](int) {});
  test::allow_child(start_fork_server());
}

TEST_CASE("fork server: its death is told to those whose children it had, and the next start makes a new one") {
  Queue<int> ready(1);
  Process child(
      {},
      [](Queue<int> to) {
        to.put(::getpid());
        for (;;) ::pause();
      },
      ready);
  child.start();
  ready.get();
  const pid_t server = start_fork_server();
  const auto watched = test::watch({server, child.pid()});
  ::kill(server, SIGKILL);
  CHECK(test::all_end(watched));
  child.join();
  CHECK_THROWS_WITH(child.result(), ContainsSubstring("the fork server died"));
  CHECK(spawn({.nprocs = 2}, [](int rank) { return rank; }) == std::vector{0, 1});
  CHECK(start_fork_server() != server);
  test::allow_child(start_fork_server());
}

/// Of this process, but for the one that lists them.
std::vector<std::string> descriptors() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    auto target = std::filesystem::read_symlink(entry, gone).string();
    if (!gone && !target.ends_with("/fd") && std::stoi(entry.path().filename()) > 2) result.push_back(target);
  }
  std::sort(result.begin(), result.end());
  return result;
}

TEST_CASE("fork server: one that was killed is not told as running") {
  const pid_t server = start_fork_server();
  const auto watched = test::watch({server});
  ::kill(server, SIGKILL);
  CHECK(test::all_end(watched));
  const pid_t next = start_fork_server();
  CHECK(next != server);
  CHECK(spawn({}, [](int) { return int(::getppid()); }) == std::vector{int(next)});
  test::allow_child(next);
}

TEST_CASE("fork server: children have the session's descriptors and the way to the server, and nothing of siblings") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  Fd inheritable(::dup(2));  // not CLOEXEC
  Queue<int> go(8);
  auto siblings = start_processes({.nprocs = 3, .start_method = method}, [](int, Queue<int> q) { q.get(); }, go);
  const auto seen = spawn({.start_method = method}, [](int) { return descriptors(); })[0];
  for (int i = 0; i < 3; ++i) go.put(0);
  siblings.join();
  REQUIRE(seen.size() == (method == StartMethod::spawn ? 4 : 3));
  CHECK_THAT(seen[0], StartsWith("/memfd:shoal-heap"));
  CHECK_THAT(seen[1], StartsWith("/memfd:shoal-liveness"));
  CHECK_THAT(seen.back(), StartsWith("socket:"));
  if (method == StartMethod::spawn) CHECK_THAT(seen[2], StartsWith("pipe:"));  // its parent's lifeline
}

}  // namespace
}  // namespace shoal
