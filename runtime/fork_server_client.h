// This process's way to the fork server.
#pragma once

#include <shoal/ipc/fd.h>
#include <shoal/runtime/child_blocks.h>
#include <shoal/runtime/exec_self.h>

#include <mutex>

namespace shoal {

/// Starts the fork server now rather than at the first start that uses it: it loads in the background.
/// Does nothing where this process has one already. Returns its pid.
pid_t start_fork_server();

/// A process that the fork server was asked for.
struct PendingFork {
  Fd reply;
  pid_t server = 0;
};

/// The socket to the fork server: inherited from the process that started this one, or made together
/// with a fork server at the first need. One a process, never destroyed. Threads: any. When the fork
/// server dies, so do its children; the next start finds out and throws, and the one after that makes a new server.
class ForkServerClient {
 public:
  static ForkServerClient& instance();

  /// In a started process, before anything else.
  static void inherit(Fd socket, pid_t server);

  /// For a process that is started by exec to inherit; -1 if there is none yet.
  int socket() const;
  pid_t server() const;

  pid_t ensure_started();
  /// Sends a request.
  PendingFork request(const ChildBlocks& blocks);
  /// Waits for the first reply. Throws Error where the server could not fork, or is dead.
  StartedProcess await(PendingFork pending);

 private:
  void start();
  [[noreturn]] void report_death(pid_t server);

  mutable std::mutex mutex_;
  Fd socket_;
  pid_t server_ = 0;
  Fd process_;  // pidfd, where the server is this process's own child
  pid_t owner_ = 0;
};

}  // namespace shoal
