#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/exec_self.h>
#include <shoal/runtime/exit_status.h>
#include <shoal/runtime/lasting_thread.h>
#include <shoal/runtime/parent_death.h>
#include <shoal/runtime/pidfd.h>
#include <shoal/runtime/process_title.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

namespace shoal {
namespace {

struct ExecPlan {
  char* const* arguments;
  char* const* environment;
  const int* descriptors;
  std::size_t descriptor_count;
  pid_t parent;
};

/// Runs in the child while it still lives in its parent's memory, whose other threads go on: system calls
/// only; no allocation, no lock, nothing that writes to variables of the program. All signals are blocked.
[[noreturn]] void exec_in_child(const ExecPlan& plan, volatile int* failure) noexcept {
  die_with_parent(plan.parent);
  // A handler must not run here once signals are let in; ignored ones stay ignored, as after any exec.
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    bool reset = action.sa_handler != SIG_IGN || signal == SIGTERM || signal == SIGCHLD;
    action = {};
    action.sa_handler = signal == SIGINT ? SIG_IGN : SIG_DFL;
    if (reset || signal == SIGINT) ::sigaction(signal, &action, nullptr);
  }
  constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC, Linux 5.11; before that only what has it already closes
  ::syscall(SYS_close_range, 3u, ~0u, kCloseOnExec);
  for (std::size_t i = 0; i < plan.descriptor_count; ++i) ::fcntl(plan.descriptors[i], F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve("/proc/self/exe", plan.arguments, plan.environment);
  *failure = errno;
  ::_exit(127);
}

/// A function of its own, not inlined: the child runs on this very frame until it has executed.
__attribute__((noinline)) pid_t vfork_and_exec(const ExecPlan& plan, volatile int* failure) {
  pid_t pid = ::vfork();
  if (pid == 0) exec_in_child(plan, failure);
  return pid;
}

std::vector<std::string> make_environment(int num_threads) {
  constexpr std::string_view kThreads = "OMP_NUM_THREADS=";
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable)
    if (num_threads == 0 || !std::string_view(*variable).starts_with(kThreads)) result.emplace_back(*variable);
  if (num_threads != 0) result.push_back(fmt::format("{}{}", kThreads, num_threads));
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

StartedProcess exec_self(const std::string& argument, const std::vector<int>& descriptors, int num_threads) {
  std::vector<std::string> arguments{program_name(), argument}, environment = make_environment(num_threads);
  std::vector<char*> argument_pointers = pointers_to(arguments), environment_pointers = pointers_to(environment);
  const ExecPlan plan{argument_pointers.data(), environment_pointers.data(), descriptors.data(), descriptors.size(),
                      ::getpid()};
  StartedProcess started;
  volatile int failure = 0;
  int error = 0;
  in_lasting_thread([&] {
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    started.pid = vfork_and_exec(plan, &failure);
    error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  });
  if (started.pid < 0)
    throw SystemError("starting a process", error,
                      "look at RLIMIT_NPROC (ulimit -u), the cgroup's pids.max, and memory");
  started.process = open_pidfd_of_new_child(started.pid);
  if (failure != 0) {
    reap(started.process);
    throw SystemError("executing /proc/self/exe, this program, once more", failure, "is /proc mounted?");
  }
  return started;
}

}  // namespace shoal
