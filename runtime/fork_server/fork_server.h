// The process that forks workers off itself on request.
#pragma once

#include <shoal/internal/runtime/fork_server/fork_server_protocol.h>
#include <shoal/internal/runtime/fork_server/frozen_heap.h>
#include <shoal/internal/runtime/fork_server/warm_pages.h>
#include <shoal/internal/runtime/ticket/start_ticket.h>
#include <shoal/ipc/fd.h>
#include <sys/resource.h>

#include <optional>
#include <vector>

struct pollfd;  // NOLINT(readability-identifier-naming): the system's

namespace shoal {

/// A fresh, single-threaded process that has loaded what children need. Any process of the session that
/// inherited its request socket may ask it for children, at any depth of the tree; several may ask at
/// once. To the kernel the children are the fork server's: it reaps them and passes their status on to
/// who asked (the *logical* parent), and it kills them as soon as that one is dead.
///
/// While nobody asks for anything it gets ready for those who will. It freezes its heap, which makes each fork three
/// times as fast, and forks spares: children that have nothing to do yet, so that the next one asked for need not be
/// forked first. One that dies is replaced.
///
/// It ends with the process that started it, and its children end with it: the kernel sees to both.
class ForkServer {
 public:
  /// `requests`: the end to read from. `ask`: the other end, for the children to inherit.
  ForkServer(Fd requests, Fd ask, int spares, bool may_freeze);

  /// Runs until killed. A forked child runs its function inside.
  [[noreturn]] void serve();

 private:
  struct Child {
    pid_t pid;
    Fd process;
    Fd parent, lifeline;  // of the logical parent; none any more after its death
    Fd reply;
  };
  struct Spare {
    pid_t pid;
    Fd process;
    Fd wake;  // to send it its request
  };

  bool has_idle_work() const { return may_freeze() || wants_spare(); }
  void do_idle_work();
  void look_after(Child& child, const pollfd* polled);
  void answer_request();
  std::optional<Spare> take_spare(const ForkRequest& request);
  /// Forks; 0 and errno if that is impossible, and in the child `run` is called.
  template <class Run>
  pid_t fork_child(Fd& process, Run&& run);
  void add_spare();
  void end_spares(int keep);
  [[noreturn]] void wait_as_spare(Fd wake);
  [[noreturn]] void become_child(const ForkRequest& request);
  /// Not while there are children: they would keep the pages that the heap had before, and the memory be there twice.
  bool may_freeze() const { return extra_threads_ == 0 && !heap_.is_done() && children_.empty(); }
  bool wants_spare() const {
    return extra_threads_ == 0 && !spare_was_refused_ && int(spares_.size()) < spares_wanted_;
  }

  Fd requests_, ask_;
  std::vector<Child> children_;
  std::vector<Spare> spares_;
  FrozenHeap heap_;
  WarmPages pages_;
  int spares_wanted_;
  bool spare_was_refused_ = false;  // since something happened last that may have made room for one
  int extra_threads_ = 0;
  rlimit descriptor_limit_{};  // what the children shall have
};

/// Of a process that was started to be the fork server.
[[noreturn]] void run_fork_server(const StartTicket& ticket);

}  // namespace shoal
