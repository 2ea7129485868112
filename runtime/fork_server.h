// The process that forks workers off itself on request.
#pragma once

#include <shoal/ipc/fd.h>
#include <shoal/runtime/fork_server_protocol.h>
#include <shoal/runtime/start_ticket.h>
#include <sys/resource.h>

#include <vector>

namespace shoal {

/// A fresh, single-threaded process that has loaded what children need. Any process of the session that
/// inherited its request socket may ask it for children, at any depth of the tree; several may ask at
/// once. To the kernel the children are the fork server's: it reaps them and passes their status on to
/// who asked (the *logical* parent), and it kills them as soon as that one is dead.
///
/// It ends with the process that started it, and its children end with it: the kernel sees to both.
class ForkServer {
 public:
  /// `requests`: the end to read from. `ask`: the other end, for the children to inherit.
  ForkServer(Fd requests, Fd ask);

  /// Runs until killed. A forked child runs its function inside.
  [[noreturn]] void serve();

 private:
  struct Child {
    pid_t pid;
    Fd process;
    Fd parent;  // the logical one; none any more after its death
    Fd reply;
  };

  void answer_request();
  void look_after(Child& child);
  [[noreturn]] void become_child(const ForkRequest& request);

  Fd requests_, ask_;
  std::vector<Child> children_;
  int extra_threads_ = 0;
  rlimit descriptor_limit_{};  // what the children shall have
};

/// Of a process that was started to be the fork server.
[[noreturn]] void run_fork_server(const StartTicket& ticket);

}  // namespace shoal
