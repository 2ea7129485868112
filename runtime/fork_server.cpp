#include <errno.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/child_main.h>
#include <shoal/runtime/fork_server.h>
#include <shoal/runtime/fork_server_client.h>
#include <shoal/runtime/hooks.h>
#include <shoal/runtime/parent_death.h>
#include <shoal/runtime/pidfd.h>
#include <shoal/runtime/thread_count.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

namespace shoal {
namespace {

/// Ctrl-C and a process group's SIGTERM are for those that use the server: it ends with its parent. Blocked and not
/// ignored, so that one sent to a child that was forked just now waits until it is the child's again.
void set_terminate_blocked(bool blocked) {
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  ::sigprocmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &terminate, nullptr);
}

}  // namespace

ForkServer::ForkServer(Fd requests, Fd ask) : requests_(std::move(requests)), ask_(std::move(ask)) {
  // Three a child: more than programs usually need.
  ::getrlimit(RLIMIT_NOFILE, &descriptor_limit_);
  rlimit most{descriptor_limit_.rlim_max, descriptor_limit_.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &most);
}

void ForkServer::serve() {
  extra_threads_ = int(other_threads().size());
  std::vector<int> watched;
  for (;;) {
    watched.assign({requests_.get()});
    for (const Child& child : children_) {
      watched.push_back(child.process.get());
      watched.push_back(child.parent.get());
    }
    wait_readable(watched, Deadline::never());
    // The dead first, so that a request finds their slots and pids free.
    for (Child& child : children_) look_after(child);
    std::erase_if(children_, [](const Child& child) { return !child.process; });
    if (is_readable(requests_.get())) answer_request();
  }
}

void ForkServer::look_after(Child& child) {
  if (is_readable(child.process.get())) {
    EndReply reply{reap(child.process)};
    send_message(child.reply, bytes_of(reply), {});
    child.process.reset();
  } else if (child.parent && is_readable(child.parent.get())) {
    send_signal(child.process, SIGKILL);
    child.parent.reset();  // stays readable for ever
  }
}

void ForkServer::answer_request() {
  ForkRequest request;
  std::vector<Fd> descriptors;
  if (!receive_message(requests_, writable_bytes_of(request), descriptors) || request.magic != ForkRequest::kMagic ||
      descriptors.size() != 2)
    return;  // whoever sent this sees its reply socket close
  Child child{0, Fd(), std::move(descriptors[1]), std::move(descriptors[0])};
  if (is_readable(child.parent.get())) return;  // died while its request waited
  ForkReply reply;
  if (extra_threads_ > 0) {
    reply.threads = extra_threads_ + 1;
    send_message(child.reply, bytes_of(reply), {});
    return;
  }
  const pid_t self = ::getpid();
  child.pid = ::fork();
  if (child.pid == 0) {
    die_with_parent(self);
    child = {};
    become_child(request);
  }
  if (child.pid < 0) {
    reply.error = errno;
    send_message(child.reply, bytes_of(reply), {});
    return;
  }
  reply.pid = child.pid;
  try {
    child.process = open_pidfd_of_new_child(child.pid);
  } catch (const SystemError& error) {
    reply = {.error = error.error_number()};
    send_message(child.reply, bytes_of(reply), {});
    return;
  }
  int process = child.process.get();
  send_message(child.reply, bytes_of(reply), {&process, 1});
  children_.push_back(std::move(child));
}

void ForkServer::become_child(const ForkRequest& request) {
  // Nothing of its siblings: a reply socket kept open here would hide the fork server's death.
  children_.clear();
  requests_.reset();
  ForkServerClient::inherit(std::move(ask_), ::getppid());
  set_terminate_blocked(false);
  ::setrlimit(RLIMIT_NOFILE, &descriptor_limit_);
  run_started_child(request.blocks, ProcessTag::from_word(request.parent_tag));
}

void run_fork_server(const StartTicket& ticket) {
  set_terminate_blocked(true);
  Session::current().describe_self("fork server", -1);
  hooks::run_preloads();
  ForkServer(Fd(ticket.served), Fd(ticket.requests)).serve();
}

}  // namespace shoal
