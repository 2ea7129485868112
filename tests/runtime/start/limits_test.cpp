#include <grp.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/runtime/start/methods.h"
#include "tests/support/forked.h"

namespace shoal {
namespace {

/// Children of this process, running or not, but for the fork server.
int count_children() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t pid = 0; children >> pid;) count += pid != start_fork_server();
  }
  return count;
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("expected: " + what);
}

/// Becomes a user whose processes are counted, and who has none yet. Root's are not.
void become_limited_user(rlim_t processes) {
  if (::geteuid() == 0) {
    expect(::setgroups(0, nullptr) == 0 && ::setresuid(54321, 54321, 54321) == 0, "another user");
  }
  rlimit limit{processes, processes};
  expect(::setrlimit(RLIMIT_NPROC, &limit) == 0, "a limit");
}

TEST_CASE("limits: no room for another process is an error with the reason, and ends those already started") {
  FOR_EACH_METHOD(method);
  if (::geteuid() != 0) return;  // an ordinary user's other processes count as well
  test::Forked limited([&] {
    become_limited_user(4);
    ForkServerClient::inherit(Fd(), 0);  // the test's is root's; this user makes one
    std::string error;
    try {
      auto wait = [](int) {
        for (;;) ::pause();
      };
      start_processes({.nprocs = 16, .start_method = method, .grace_period = {}}, wait);
    } catch (const SystemError& failure) {
      error = failure.what();
    }
    expect(error.find("RLIMIT_NPROC") != std::string::npos, "the limit's name in: " + error);
    expect(count_children() == 0, "no child left");
  });
  CHECK(limited.join() == 0);
}

/// The third of it finds no memory.
struct Scarce {
  int value = 0;
};
int written = 0;

}  // namespace

template <>
struct Codec<Scarce> {
  static constexpr std::uint64_t schema() { return schema_hash("Scarce"); }
  static void encode(Encoder&, const Scarce&) {
    if (++written == 3) throw OutOfSharedMemory(1, 2, 3, "a test");
  }
  static Scarce decode(Decoder&) { return {}; }
};

namespace {

TEST_CASE("limits: no memory for the arguments of a later rank is told, and ends those already started") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  test::Forked limited([&] {
    written = 0;
    auto wait = [](int, Scarce) {
      for (;;) ::pause();
    };
    bool thrown = false;
    try {
      start_processes({.nprocs = 4, .start_method = method, .grace_period = {}}, wait, Scarce{});
    } catch (const OutOfSharedMemory&) {
      thrown = true;
    }
    expect(thrown && written == 3, "an error at the third rank");
    expect(count_children() == 0, "no child left");
  });
  CHECK(limited.join() == 0);
}

// UBSan looks at a vptr by way of a pipe: without descriptors it takes every object for a wrong one.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("limits: descriptors that run out in the middle of a start are an error, and end those already started") {
  FOR_EACH_METHOD(method);
  test::Forked limited([&] {
    const int next = ::dup(0);
    ::close(next);
    rlimit limit{rlim_t(next + 24), rlim_t(next + 24)};
    expect(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "a limit");
    auto wait = [](int) {
      for (;;) ::pause();
    };
    bool thrown = false;
    try {
      start_processes({.nprocs = 32, .start_method = method, .grace_period = {}}, wait);
    } catch (const Error&) {
      thrown = true;
    }
    expect(thrown, "an error");
    expect(count_children() == 0, "no child left");
    expect(spawn({.start_method = method}, [](int) { return 7; })[0] == 7, "that it can go on");
  });
  CHECK(limited.join() == 0);
}
#endif

}  // namespace
}  // namespace shoal
