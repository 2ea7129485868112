#include <shoal/internal/runtime/os/parent_death.h>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace shoal {

void die_with_parent(pid_t parent) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It died before the line above: this process was given to another parent. Nobody waits for a report.
  if (::getppid() != parent) ::_exit(1);
}

}  // namespace shoal
