#include <shoal/internal/runtime/fork_server/fork_server_client.h>

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/runtime/child/descendants.h>
#include <shoal/internal/runtime/fork_server/fork_server_protocol.h>
#include <shoal/internal/runtime/os/lifeline.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <shoal/internal/runtime/ticket/start_ticket.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/runtime/exit_status.h>
#include <shoal/runtime/stop.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <new>
#include <stdexcept>

namespace shoal {
namespace {

constinit std::mutex mutex;

[[gnu::init_priority(101)]] const AtFork at_fork({
    // DANGER: not waited for. Who starts a server has it, and waits for the lasting thread to execute it, which may be
    // the thread that forks.
    .in_child = []() noexcept { new (&mutex) std::mutex; },
});

}  // namespace

pid_t start_fork_server() { return ForkServerClient::instance().ensure_started(nullptr); }

pid_t start_fork_server(const ForkServerOptions& options) {
  if (options.spares < 0 || options.spares > 256)
    throw std::invalid_argument(
        fmt::format("spares is {}: give the number of processes to keep ready, 0 to 256", options.spares));
  return ForkServerClient::instance().ensure_started(&options);
}

ForkServerClient& ForkServerClient::instance() {
  static auto* client = new ForkServerClient;
  return *client;
}

void ForkServerClient::inherit(Fd socket, pid_t server) {
  ForkServerClient& client = instance();
  client.socket_ = std::move(socket);
  client.server_ = server;
}

int ForkServerClient::socket() const {
  std::lock_guard lock(mutex);
  return socket_.get();
}

pid_t ForkServerClient::server() const {
  std::lock_guard lock(mutex);
  return server_;
}

pid_t ForkServerClient::ensure_started(const ForkServerOptions* options) {
  std::lock_guard lock(mutex);
  if (has_ended()) bury(server_);
  if (options) {
    options_ = *options;
    ForkRequest wish;
    wish.spares = options->spares;
    if (socket_ && !send_message(socket_, bytes_of(wish), {})) bury(server_);
  }
  if (!socket_) start();
  return server_;
}

/// Whether there was a server and is none any more, as far as the kernel knows: one that was killed a moment ago may
/// still be on its way out, and then the next request finds that out.
bool ForkServerClient::has_ended() const {
  if (!socket_) return false;
  if (process_ && made_by_.is_this() && is_readable(process_.get())) return true;
  pollfd end{socket_.get(), 0, 0};
  return ::poll(&end, 1, 0) == 1 && (end.revents & (POLLHUP | POLLERR)) != 0;
}

void ForkServerClient::start() {
  SocketPair sockets = make_socket_pair();
  const StartTicket ticket{.role = StartTicket::Role::kForkServer,
                           .parent = ParentTicket::of_this_process(),
                           .requests = sockets.first.get(),
                           .served = sockets.second.get(),
                           .spares = options_.spares,
                           .freeze = options_.freeze_heap ? 1 : 0,
                           .blocks = {}};
  std::vector<int> descriptors = ticket.parent.descriptors();
  descriptors.insert(descriptors.end(), {ticket.requests, ticket.served});
  StartedProcess started = exec_self(ticket.to_argument(), descriptors);
  socket_ = std::move(sockets.first);
  server_ = started.pid;
  process_ = std::move(started.process);
  made_by_ = OwnerProcess();
  log_info("started a fork server: pid {}, {} spares", server_, options_.spares);
}

PendingFork ForkServerClient::request(const ChildBlocks& blocks) {
  SocketPair replies = make_socket_pair();
  Fd self = open_pidfd(::getpid());
  ForkRequest request;
  request.parent_tag = Session::current().self().word();
  request.blocks = blocks;
  const int carried[] = {replies.second.get(), self.get(), lifeline_of_this_process()};
  std::lock_guard lock(mutex);
  for (bool again = false;; again = true) {
    if (!socket_) start();
    if (send_message(socket_, bytes_of(request), carried)) return {std::move(replies.first), server_};
    if (errno != EPIPE && errno != ECONNRESET) throw SystemError("asking the fork server for a process", errno);
    const std::string how = bury(server_);
    if (again) throw ForkServerDied(how);
  }
}

/// A server that hangs, in a hook of register_preload or stopped, must not keep a process from ending that is asked to
/// stop: whoever holds up signals meanwhile (HeldStop) asks here.
void ForkServerClient::wait_for_reply(const PendingFork& pending) {
  constexpr std::chrono::milliseconds kSlice{100};  // see kLivenessSlice
  constexpr int kSlicesAfterStop = 10;
  const int reply = pending.reply.get();
  for (int late = 0; !wait_readable({&reply, 1}, Deadline::after(kSlice));)
    if (stop_requests() != stop_requests_before_hold() && (stop_is_urgent() || ++late > kSlicesAfterStop))
      throw Error(fmt::format(
          "asked to stop while the fork server (pid {}) has not answered: it is stopped, or a hook given to "
          "shoal::register_preload hangs",
          pending.server));
}

StartedProcess ForkServerClient::await(const PendingFork& pending) {
  wait_for_reply(pending);
  ForkReply reply;
  std::vector<Fd> descriptors;
  if (!receive_message(pending.reply, writable_bytes_of(reply), descriptors)) {
    std::lock_guard lock(mutex);
    throw ForkServerDied(bury(pending.server));
  }
  if (reply.threads != 0)
    throw Error(
        fmt::format("the fork server has {} threads, and forks would lose all but one: a hook given to "
                    "shoal::register_preload, or a static initializer, has started threads",
                    reply.threads));
  if (reply.error != 0)
    throw SystemError("forking a process off the fork server", reply.error,
                      "look at RLIMIT_NPROC (ulimit -u), the cgroup's pids.max, and memory");
  if (descriptors.size() != 1) {
    // There is a process, but no room here for its descriptor: it is given up before anyone hears of it.
    ::shutdown(pending.reply.get(), SHUT_WR);
    EndReply end;
    receive_message(pending.reply, writable_bytes_of(end), descriptors);
    clean_up_after(reply.pid);
    throw SystemError("receiving the descriptor of a new process", EMFILE, "raise RLIMIT_NOFILE (ulimit -n)");
  }
  return {reply.pid, std::move(descriptors[0])};
}

std::string ForkServerClient::bury(pid_t server) {
  std::string how = "died";
  if (server_ == server) {  // else another thread has found out already, and there may be a new one
    int process = process_.get();
    // Its sockets close a moment before it can be waited for.
    if (process >= 0 && made_by_.is_this() && wait_readable({&process, 1}, Deadline::after(std::chrono::seconds(1)))) {
      ExitStatus status = reap(process_);
      how = status.signal ? fmt::format("was killed by {}", signal_name(status.signal))
                          : fmt::format("exited with code {}", status.code);
    }
    log_info("the fork server (pid {}) {}: the next start makes another one", server_, how);
    socket_.reset();
    process_.reset();
    server_ = 0;
  }
  return fmt::format("the fork server (pid {}) {}, and its children with it", server, how);
}

}  // namespace shoal
