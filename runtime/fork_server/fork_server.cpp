#include <shoal/internal/runtime/fork_server/fork_server.h>

#include <errno.h>
#include <poll.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/child/child_main.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/runtime/os/lifeline.h>
#include <shoal/internal/runtime/os/openmp_threads.h>
#include <shoal/internal/runtime/os/parent_death.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/internal/runtime/os/process_title.h>
#include <shoal/internal/runtime/os/thread_count.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/runtime/hooks.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace shoal {
namespace {

/// Quiet for this long, the server does what it does when idle: it takes the CPU from those that were just started.
constexpr int kIdleMilliseconds = 2;

/// Ctrl-C and a process group's SIGTERM are for those that use the server: it ends with its parent. Blocked and not
/// ignored, so that one sent to a child that was forked just now waits until it is the child's again.
void set_terminate_blocked(bool blocked) {
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  ::sigprocmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &terminate, nullptr);
}

bool is_set(const pollfd& polled) { return polled.fd >= 0 && polled.revents != 0; }

}  // namespace

ForkServer::ForkServer(Fd requests, Fd ask, int spares, bool may_freeze)
    : requests_(std::move(requests)), ask_(std::move(ask)), spares_wanted_(spares) {
  if (!may_freeze) heap_.stop();
  if (!heap_.obstacle().empty()) log_info("does not freeze its heap: {}", heap_.obstacle());
  // Four a child: more than programs usually need.
  ::getrlimit(RLIMIT_NOFILE, &descriptor_limit_);
  rlimit most{descriptor_limit_.rlim_max, descriptor_limit_.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &most);
}

void ForkServer::serve() {
  extra_threads_ = int(other_threads().size());
  std::vector<pollfd> polled;
  for (;;) {
    polled.assign({{requests_.get(), POLLIN, 0}});
    for (const Child& child : children_)
      for (const Fd* descriptor : {&child.process, &child.parent, &child.lifeline, &child.reply})
        polled.push_back({child.parent || descriptor == &child.process ? descriptor->get() : -1, POLLIN, 0});
    for (const Spare& spare : spares_) polled.push_back({spare.process.get(), POLLIN, 0});
    const int ready = ::poll(polled.data(), polled.size(), has_idle_work() ? kIdleMilliseconds : -1);
    if (ready < 0) continue;
    if (ready == 0) {
      do_idle_work();
      continue;
    }
    spare_was_refused_ = false;
    // The dead first, so that a request finds their slots and pids free.
    const pollfd* next = polled.data() + 1;
    for (Child& child : children_) look_after(child, std::exchange(next, next + 4));
    for (Spare& spare : spares_)
      if (is_set(*next++)) {
        reap(spare.process);
        spare.process.reset();
      }
    std::erase_if(children_, [](const Child& child) { return !child.process; });
    std::erase_if(spares_, [](const Spare& spare) { return !spare.process; });
    if (is_set(polled.front())) answer_request();
  }
}

void ForkServer::do_idle_work() {
  if (may_freeze()) {
    // Shoal's own threads do not keep it from forking, but they write to the heap as any other.
    if (!is_only_thread()) {
      heap_.stop();
      log_info("does not freeze its heap: a preload has started a thread");
      return;
    }
    end_spares(0);
    heap_.freeze_piece();
    if (heap_.is_done()) log_debug("froze the heap: forks are cheaper from now on");
  } else {
    add_spare();
  }
}

void ForkServer::look_after(Child& child, const pollfd* polled) {
  if (is_set(polled[0])) {
    EndReply reply{reap(child.process)};
    send_message(child.reply, bytes_of(reply), {});
    child.process.reset();
  } else if (is_set(polled[1]) || is_set(polled[2]) || is_set(polled[3])) {
    // Whoever asked is dead, has executed another program, or wants no reply: nothing else comes from there.
    log_info("killing process {}: who asked for it is dead, runs another program, or gave it up", child.pid);
    send_signal(child.process, SIGKILL);
    child.parent.reset();  // they stay readable for ever
    child.lifeline.reset();
  }
}

void ForkServer::answer_request() {
  ForkRequest request;
  std::vector<Fd> descriptors;
  if (!receive_message(requests_, writable_bytes_of(request), descriptors) || request.magic != ForkRequest::kMagic)
    return;
  if (request.spares >= 0) {
    spares_wanted_ = request.spares;
    end_spares(spares_wanted_);
    return;
  }
  if (descriptors.size() != ForkRequest::kDescriptors) return;  // whoever sent this sees its reply socket close
  Child child{0, Fd(), std::move(descriptors[1]), std::move(descriptors[2]), std::move(descriptors[0])};
  // Died, or executed another program, while its request waited.
  if (is_readable(child.parent.get()) || is_readable(child.lifeline.get())) return;
  ForkReply reply;
  bool was_spare = false;
  if (extra_threads_ > 0) {
    reply.threads = extra_threads_ + 1;
  } else if (auto spare = take_spare(request)) {
    was_spare = true;
    child.pid = spare->pid;
    child.process = std::move(spare->process);
  } else {
    child.pid = fork_child(child.process, [&] {
      child = {};
      become_child(request);
    });
    if (child.pid == 0) reply.error = errno;
  }
  reply.pid = child.pid;
  if (child.process)
    log_debug("{} for slot {}: pid {}", was_spare ? "woke a spare" : "forked a process",
              ProcessTag::from_word(request.parent_tag).slot(), child.pid);
  if (!child.process) {
    send_message(child.reply, bytes_of(reply), {});
    return;
  }
  const int process = child.process.get();
  send_message(child.reply, bytes_of(reply), {&process, 1});
  children_.push_back(std::move(child));
}

void ForkServer::end_spares(int keep) {
  while (int(spares_.size()) > keep) {
    send_signal(spares_.back().process, SIGKILL);
    reap(spares_.back().process);
    spares_.pop_back();
  }
}

std::optional<ForkServer::Spare> ForkServer::take_spare(const ForkRequest& request) {
  while (!spares_.empty()) {
    Spare spare = std::move(spares_.back());
    spares_.pop_back();
    if (!is_readable(spare.process.get()) && send_message(spare.wake, bytes_of(request), {})) return spare;
    send_signal(spare.process, SIGKILL);
    reap(spare.process);
  }
  return std::nullopt;
}

template <class Run>
pid_t ForkServer::fork_child(Fd& process, Run&& run) {
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return 0;
  if (pid == 0) {
    die_with_parent(self);
    forget_inherited_lifeline();
    // Nothing of its siblings: a reply socket kept open here would hide the fork server's death.
    children_.clear();
    spares_.clear();
    requests_.reset();
    heap_.stop();
    set_terminate_blocked(false);
    run();
    ::_exit(1);
  }
  try {
    process = open_pidfd_of_new_child(pid);
  } catch (const SystemError& error) {
    errno = error.error_number();
    return 0;
  }
  return pid;
}

void ForkServer::add_spare() {
  int error = 0;
  try {
    SocketPair sockets = make_socket_pair();
    Spare spare{0, Fd(), std::move(sockets.first)};
    spare.pid = fork_child(spare.process, [&] {
      spare.wake.reset();
      wait_as_spare(std::move(sockets.second));
    });
    error = errno;  // before anything else is called
    if (spare.pid != 0) {
      log_debug("made a spare: pid {}", spare.pid);
      spares_.push_back(std::move(spare));
      return;
    }
  } catch (const SystemError& no_descriptors) {
    error = no_descriptors.error_number();
  }
  // No room for now: those that are asked for come first, and after the next request or end it is tried again.
  log_debug("cannot make a spare: {}", std::strerror(error));
  spare_was_refused_ = true;
}

void ForkServer::wait_as_spare(Fd wake) {
  set_process_title("spare", -1);
  pages_.bring_in();
  ForkRequest request;
  std::vector<Fd> none;
  if (!receive_message(wake, writable_bytes_of(request), none)) ::_exit(0);
  wake.reset();
  become_child(request);
}

void ForkServer::become_child(const ForkRequest& request) {
  ForkServerClient::inherit(std::move(ask_), ::getppid());
  ::setrlimit(RLIMIT_NOFILE, &descriptor_limit_);
  run_started_child(request.blocks, ProcessTag::from_word(request.parent_tag));
}

void run_fork_server(const StartTicket& ticket) {
  set_terminate_blocked(true);
  SessionCore::current().describe_self("fork server", -1);
  set_process_title("fork server", -1);
  hooks::run_preloads();
  end_openmp_threads();
  prepare_forks();
  ForkServer(Fd(ticket.served), Fd(ticket.requests), ticket.spares, ticket.freeze != 0).serve();
}

}  // namespace shoal
