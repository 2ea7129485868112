// This process's way to the fork server.
#pragma once

#include <shoal/internal/ipc/fork/owner_process.h>
#include <shoal/internal/runtime/exec/exec_self.h>
#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <shoal/runtime/fork_server.h>

#include <string>

namespace shoal {

/// A process that the fork server was asked for: where it answers, and later says how that one ended.
struct PendingFork {
  Fd reply;
  pid_t server = 0;
};

/// The fork server has died, and its children with it: the next request makes a new one.
class ForkServerDied : public Error {
 public:
  using Error::Error;
};

/// The socket to the fork server: inherited from the process that started this one, or made together
/// with a fork server at the first need. One a process, never destroyed. Threads: any. When the fork
/// server dies, so do its children; the next start finds out and makes a new server.
class ForkServerClient {
 public:
  static ForkServerClient& instance();

  /// In a started process, before anything else.
  static void inherit(Fd socket, pid_t server);

  /// For a process that is started by exec to inherit; -1 if there is none yet.
  int socket() const;
  pid_t server() const;

  pid_t ensure_started(const ForkServerOptions* options);
  /// Sends a request, to a new server if the old one turns out to be dead.
  PendingFork request(const ChildBlocks& blocks);
  /// Waits for the first reply. Throws Error if the server could not fork, or does not answer and this process is asked
  /// to stop; ForkServerDied if it died before it answered.
  StartedProcess await(const PendingFork& pending);

 private:
  static void wait_for_reply(const PendingFork& pending);
  bool has_ended() const;
  void start();
  /// Forgets a server that is dead; says how it died.
  std::string bury(pid_t server);

  // Under the mutex of fork_server_client.cpp.
  ForkServerOptions options_;
  Fd socket_;
  pid_t server_ = 0;
  Fd process_;  // pidfd, if the server was made by this process and no ancestor
  OwnerProcess made_by_;
};

}  // namespace shoal
