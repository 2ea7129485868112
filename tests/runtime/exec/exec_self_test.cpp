#include <shoal/runtime/current_process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

struct Signals {
  bool ignores_interrupt, default_terminate, nothing_blocked;
  int parent_death;
};

Signals look_at_signals(int) {
  struct sigaction interrupt, terminate;
  ::sigaction(SIGINT, nullptr, &interrupt);
  ::sigaction(SIGTERM, nullptr, &terminate);
  sigset_t mask;
  ::sigprocmask(SIG_SETMASK, nullptr, &mask);
  Signals seen{interrupt.sa_handler == SIG_IGN, terminate.sa_handler == SIG_DFL, ::sigisemptyset(&mask) == 1, 0};
  ::prctl(PR_GET_PDEATHSIG, &seen.parent_death);
  return seen;
}

TEST_CASE("exec: children start without their parent's handlers and masks, and leave Ctrl-C to it") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  const auto handler = ::signal(SIGTERM, [](int) {});
  sigset_t some, before;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR1);
  sigaddset(&some, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &some, &before);
  const Signals seen = spawn({.start_method = method}, look_at_signals)[0];
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGTERM, handler);
  CHECK(seen.ignores_interrupt);
  CHECK(seen.default_terminate);
  CHECK(seen.nothing_blocked);
  CHECK(seen.parent_death == SIGKILL);
}

TEST_CASE("exec: a forked child keeps its parent's handlers, leaves Ctrl-C to it and dies with it") {
  const Signals seen = spawn({.start_method = StartMethod::fork}, look_at_signals)[0];
  CHECK(seen.ignores_interrupt);
  CHECK(seen.nothing_blocked);
  CHECK(seen.parent_death == SIGKILL);
}

TEST_CASE("exec: threads are set in the environment of the new program, the rest of it is the parent's") {
  ::setenv("SHOAL_TEST_VARIABLE", "kept", 1);
  ::unsetenv("OMP_NUM_THREADS");
  auto look = [](int) {
    const char* threads = std::getenv("OMP_NUM_THREADS");
    const char* other = std::getenv("SHOAL_TEST_VARIABLE");
    return std::vector<std::string>{threads ? threads : "", other ? other : ""};
  };
  CHECK(spawn({.start_method = StartMethod::spawn, .num_threads = 7}, look)[0] ==
        std::vector<std::string>{"7", "kept"});
  ::unsetenv("SHOAL_TEST_VARIABLE");
}

}  // namespace
}  // namespace shoal
