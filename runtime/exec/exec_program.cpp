#include <shoal/internal/runtime/exec/exec_program.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/os/lasting_thread.h>
#include <shoal/internal/runtime/os/parent_death.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/exit_status.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace shoal {
namespace {

struct ExecPlan {
  const ProgramStart& start;
  char* const* arguments;
  char* const* environment;
  pid_t parent;
};

/// Descriptors 0 to 2 as the plan says. First all to numbers above: what becomes 1 may be 0 now, and the other way
/// round.
bool set_standard(const std::array<int, 3>& standard) noexcept {
  int above[3];
  for (int i = 0; i < 3; ++i)
    if (standard[std::size_t(i)] != i && (above[i] = ::fcntl(standard[std::size_t(i)], F_DUPFD_CLOEXEC, 3)) < 0)
      return false;
  for (int i = 0; i < 3; ++i)
    if (standard[std::size_t(i)] != i && ::dup2(above[i], i) < 0) return false;
  return true;
}

/// Runs in the child while it still lives in its parent's memory, whose other threads go on: system calls
/// only; no allocation, no lock, nothing that writes to variables of the program. All signals are blocked.
[[noreturn]] void exec_in_child(const ExecPlan& plan, volatile int* failure) noexcept {
  const ProgramStart& start = plan.start;
  die_with_parent(plan.parent);
  if (start.own_group) ::setpgid(0, 0);
  // A handler must not run here once signals are let in; ignored ones stay ignored, as after any exec.
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    const bool ignores = signal == SIGINT && start.ignores_interrupt;
    const bool reset =
        action.sa_handler != SIG_IGN || signal == SIGTERM || signal == SIGCHLD || signal == SIGPIPE || ignores;
    action = {};
    action.sa_handler = ignores ? SIG_IGN : SIG_DFL;
    if (reset) ::sigaction(signal, &action, nullptr);
  }
  if (!start.cpus.words.empty()) start.cpus.bind_this_thread();  // refused if a CPU is gone: then it runs anywhere
  constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC, Linux 5.11; before that only what has it already closes
  ::syscall(SYS_close_range, 3u, ~0u, kCloseOnExec);
  if (set_standard(start.standard)) {
    for (const int descriptor : start.descriptors) ::fcntl(descriptor, F_SETFD, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execve(start.path.c_str(), plan.arguments, plan.environment);
  }
  *failure = errno;
  ::_exit(127);
}

/// A function of its own, not inlined: the child runs on this very frame until it has executed.
__attribute__((noinline)) pid_t vfork_and_exec(const ExecPlan& plan, volatile int* failure) {
  pid_t pid = ::vfork();
  if (pid == 0) exec_in_child(plan, failure);
  return pid;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (auto& text : texts) result.push_back(const_cast<char*>(text.data()));  // execve writes to none of them
  result.push_back(nullptr);
  return result;
}

}  // namespace

StartedProcess exec_program(const ProgramStart& start, const std::string& what, const std::string& remedy) {
  const std::vector<char*> arguments = pointers_to(start.arguments), environment = pointers_to(start.environment);
  const ExecPlan plan{start, arguments.data(), environment.data(), ::getpid()};
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
    throw ExecRefused(fmt::format("executing {}", what), failure, remedy);
  }
  return started;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable, name = text.substr(0, text.find('='));
    if (std::ranges::none_of(changes, [&](const auto& change) { return change.first == name; }))
      result.emplace_back(text);
  }
  // The last word counts if a name comes twice.
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const bool again = std::any_of(changes.begin() + std::ptrdiff_t(i) + 1, changes.end(),
                                   [&](const auto& later) { return later.first == changes[i].first; });
    if (!again) result.push_back(fmt::format("{}={}", changes[i].first, changes[i].second));
  }
  return result;
}

}  // namespace shoal
