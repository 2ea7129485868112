#include <shoal/internal/runtime/start/fork_self.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <shoal/internal/runtime/child/child_main.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/os/lasting_thread.h>
#include <shoal/internal/runtime/os/lifeline.h>
#include <shoal/internal/runtime/os/parent_death.h>
#include <shoal/internal/runtime/os/thread_count.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/hooks.h>
#include <shoal/runtime/stop.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace shoal {
namespace {

void check_fork_is_safe(OtherThreads others) {
  if (const char* refusal = hooks::fork_refusal())
    throw Error(
        fmt::format("this process cannot be forked: {}. Use StartMethod::spawn or StartMethod::forkserver", refusal));
  if (others == OtherThreads::kLose) return;
  if (auto threads = other_threads(); !threads.empty())
    throw Error(
        fmt::format("a fork would lose {} other thread{} of this process and leave the locks they hold locked for "
                    "ever ({}). Use StartMethod::spawn or StartMethod::forkserver, fork before they start, or set "
                    "fork_despite_threads",
                    threads.size(), threads.size() == 1 ? "" : "s", fmt::join(threads, ", ")));
}

}  // namespace

FreshFork fork_self(const ChildBlocks& blocks, const StartHeader& header, Task& task, OtherThreads others) {
  check_fork_is_safe(others);
  // What is buffered would come out twice.
  std::cout.flush();
  std::fflush(stdout);
  std::fflush(stderr);
  auto [ready, tell] = make_pipe();
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  const pid_t parent = ::getpid();
  Fd lifeline = open_lifeline_for_fork();
  prepare_forks();
  pid_t child = 0;
  int error = 0;
  in_lasting_thread([&] {
    child = ::fork();
    error = errno;
    if (child != 0) return;
    die_with_parent(parent);
    die_with_opened_lifeline(std::move(lifeline));
    reset_stop_signals();
    ::signal(SIGINT, SIG_IGN);  // as with the other methods: Ctrl-C is the parent's to handle
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    ready.reset();
    run_forked_child(blocks, header, task, std::move(tell));
  });
  if (child < 0)
    throw SystemError("forking this process", error,
                      "look at RLIMIT_NPROC (ulimit -u), the cgroup's pids.max, and memory");
  return {{child, open_pidfd_of_new_child(child)}, std::move(ready)};
}

}  // namespace shoal
