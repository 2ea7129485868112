#include <shoal/internal/runtime/command/run/launch_signals.h>

#include <errno.h>
#include <shoal/ipc/error.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace shoal::command {

LaunchSignals::LaunchSignals(std::vector<int> signals) {
  signals.push_back(SIGTSTP);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    // Started with nohup, or in the background by a shell: ignored by the user's wish.
    struct sigaction now;
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  ::sigprocmask(SIG_BLOCK, &set, &before_);
  signals_ = lift(Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)));
  if (!signals_) throw SystemError("making a descriptor for signals", errno);
}

LaunchSignals::~LaunchSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> LaunchSignals::next() {
  signalfd_siginfo info;
  if (::read(signals_.get(), &info, sizeof info) != ssize_t(sizeof info)) return std::nullopt;
  return int(info.ssi_signo);
}

}  // namespace shoal::command
