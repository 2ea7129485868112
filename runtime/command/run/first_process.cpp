#include <shoal/internal/runtime/command/run/first_process.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace shoal::command {
namespace {

void reap_all(pid_t child) {
  int status;
  for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;)
    // It cannot end by a signal of its own: to process 1 those do nothing without a handler.
    if (ended == child) ::_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

}  // namespace

void stay_behind_as_first_process() {
  if (::getpid() != 1) return;
  sigset_t all, before;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  if (child <= 0) {
    // If no process is to be had, the work is done here, and orphans stay.
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return;
  }
  for (;;) {
    siginfo_t info;
    const int signal = ::sigwaitinfo(&all, &info);
    if (signal == SIGCHLD)
      reap_all(child);
    else if (signal > 0 && info.si_code != SI_KERNEL)
      ::kill(child, signal);  // not reaped: when it is, this process ends
  }
}

}  // namespace shoal::command
