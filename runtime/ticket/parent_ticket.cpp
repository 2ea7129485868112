#include <shoal/internal/runtime/ticket/parent_ticket.h>

#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/os/lifeline.h>
#include <unistd.h>

namespace shoal {

ParentTicket ParentTicket::of_this_process() {
  SessionCore& session = SessionCore::current();
  const SessionCore::Descriptors descriptors = session.descriptors();
  return {.pid = ::getpid(),
          .tag = session.self().word(),
          .memory = descriptors.memory,
          .liveness = descriptors.liveness,
          .lifeline = lifeline_of_this_process()};
}

SessionCore& ParentTicket::join() const {
  die_with_lifeline(Fd(lifeline));
  return SessionCore::join({memory, liveness});
}

}  // namespace shoal
