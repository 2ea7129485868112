#include <shoal/internal/runtime/ticket/parent_ticket.h>

#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/os/lifeline.h>
#include <unistd.h>

namespace shoal {

ParentTicket ParentTicket::of_this_process() {
  Session& session = Session::current();
  const Session::Descriptors descriptors = session.descriptors();
  return {.pid = ::getpid(),
          .tag = session.self().word(),
          .memory = descriptors.memory,
          .liveness = descriptors.liveness,
          .lifeline = lifeline_of_this_process()};
}

Session& ParentTicket::join() const {
  die_with_lifeline(Fd(lifeline));
  return Session::join({memory, liveness});
}

}  // namespace shoal
