#include <shoal/runtime/init.h>

#include <fcntl.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/child/child_main.h>
#include <shoal/internal/runtime/child/member.h>
#include <shoal/internal/runtime/crash/uncaught.h>
#include <shoal/internal/runtime/exec/early_session.h>
#include <shoal/internal/runtime/fork_server/fork_server.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/os/parent_death.h>
#include <shoal/internal/runtime/os/process_title.h>
#include <shoal/internal/runtime/ticket/start_ticket.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <stdexcept>

namespace shoal {
namespace {

std::atomic<bool> initialized{false};

[[noreturn]] void run_started(const StartTicket& ticket) {
  die_with_parent(ticket.parent.pid);  // again: a program with file capabilities lost the setting when it was executed
  for (int descriptor : {ticket.requests, ticket.served})
    if (descriptor >= 0) ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  ticket.parent.join();
  log_debug("joined the session of process {} with a ticket for {}", ticket.parent.pid,
            ticket.role == StartTicket::Role::kForkServer ? "a fork server" : "a child");
  if (ticket.role == StartTicket::Role::kForkServer) run_fork_server(ticket);
  if (ticket.requests >= 0) ForkServerClient::inherit(Fd(ticket.requests), ticket.fork_server);
  run_started_child(ticket.blocks, ticket.parent.process_tag());
}

}  // namespace

void init(int argc, char** argv) {
  if (argc > 0) note_program_name(argv[0]);
  initialized = true;
  report_uncaught_failures();
  try {
    auto ticket = argc > 1 ? StartTicket::from_argument(argv[1]) : std::nullopt;
    if (ticket) {
      note_title_place(argv[1]);
      run_started(*ticket);
    }
    note_early_session();
    if (auto member = MemberTicket::take()) {
      refuse_early_session();
      join_as_member(*member);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shoal: a started process (pid %d) cannot join its session: %s\n", int(::getpid()),
                 error.what());
    std::fflush(nullptr);
    ::_exit(1);
  }
}

void check_initialized() {
  if (!initialized)
    throw std::logic_error(
        "shoal::init was not called: make `shoal::init(argc, argv);` the first statement of main(). Started processes "
        "are "
        "this program again, and that call is where they begin their work");
}

}  // namespace shoal
