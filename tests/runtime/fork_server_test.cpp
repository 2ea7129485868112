#include "tests/runtime/methods.h"

#include "tests/support/guard.h"

#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/fork_server_client.h>
#include <shoal/runtime/hooks.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

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

TEST_CASE("fork server: layers above are told the number of threads, with every method") {
  FOR_EACH_METHOD(method);
  CHECK(spawn({.start_method = method, .num_threads = 3}, [](int) { return threads_set; }) == std::vector{3});
}

TEST_CASE("fork server: its death is told, and the next start makes a new one") {
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
  CHECK_THROWS_WITH(spawn({}, [](int) {}), ContainsSubstring("the fork server (pid " + std::to_string(server)) &&
                                               ContainsSubstring("SIGKILL"));
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

TEST_CASE("fork server: children have the session's descriptors and the way to the server, and nothing of siblings") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  Fd inheritable(::dup(2));  // not CLOEXEC
  Queue<int> go(8);
  auto siblings = start_processes({.nprocs = 3, .start_method = method}, [](int, Queue<int> q) { q.get(); }, go);
  const auto seen = spawn({.start_method = method}, [](int) { return descriptors(); })[0];
  for (int i = 0; i < 3; ++i) go.put(0);
  siblings.join();
  REQUIRE(seen.size() == 3);
  CHECK_THAT(seen[0], StartsWith("/memfd:shoal-heap"));
  CHECK_THAT(seen[1], StartsWith("/memfd:shoal-liveness"));
  CHECK_THAT(seen[2], StartsWith("socket:"));
}

}  // namespace
}  // namespace shoal
