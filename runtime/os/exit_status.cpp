#include <shoal/runtime/exit_status.h>

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

namespace shoal {

ExitStatus reap(const Fd& process) {
  constexpr auto kByPidfd = static_cast<idtype_t>(3);  // P_PIDFD, which older C libraries do not name
  siginfo_t info{};
  while (::waitid(kByPidfd, id_t(process.get()), &info, WEXITED) != 0) {
    // ECHILD: SIGCHLD is ignored, or other code of the program waits for any child there is.
    if (errno != EINTR) return ExitStatus{.unknown = 1};
  }
  if (info.si_code == CLD_EXITED) return ExitStatus{.code = info.si_status};
  return ExitStatus{.signal = info.si_status};
}

std::string signal_name(int signal) {
  if (const char* name = ::sigabbrev_np(signal)) return fmt::format("SIG{}", name);
  return fmt::format("signal {}", signal);
}

}  // namespace shoal
