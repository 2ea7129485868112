#include <shoal/internal/runtime/child/ended.h>

#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/crash/oom_kills.h>
#include <signal.h>

#include <utility>

namespace shoal {

void give_back_after(pid_t pid, const ChildBlocks& lent) {
  clean_up_after(pid);
  lent.take_back();
}

std::shared_ptr<const ProcessFailed> failure_of(ProcessIdentity who, ExitStatus status, CrashReport crash,
                                                std::vector<ExceptionSummary> raised, bool ended_here) {
  auto facts = std::make_shared<FailureFacts>();
  facts->who = std::move(who);
  facts->status = status;
  facts->crash = std::move(crash);
  facts->raised = std::move(raised);
  facts->oom_killed = status.signal == SIGKILL && !ended_here && oom_killer_was_here();
  return make_failure(std::move(facts));
}

}  // namespace shoal
