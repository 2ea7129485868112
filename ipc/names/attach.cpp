// Session::listen and Session::attach: how a process outside the tree becomes part of a session.
#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/names/attach_protocol.h>
#include <shoal/internal/ipc/names/rendezvous.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/listener.h>
#include <shoal/ipc/log.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>

namespace shoal {
namespace {

/// Of one thread at a time: the descriptors that arrive are of the session's liveness file, and another thread that has
/// attached meanwhile would lose its lock when this one closes its own.
constinit std::mutex attaching;

[[gnu::init_priority(101)]] const AtFork at_fork({.in_child = []() noexcept { new (&attaching) std::mutex; }});

/// A socket that is connected to who listens under the name; none if nobody does.
Fd connect_to(const std::string& name, std::chrono::nanoseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  for (const std::string& path : RendezvousFolder::candidates()) {
    RendezvousFolder folder = RendezvousFolder::open(path);
    if (!folder) continue;
    Fd socket = lift(Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
    if (!socket) throw SystemError("making a socket", errno);
    auto micros = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
    // Zero would be no limit.
    const timeval limit{time_t(micros / 1'000'000), suseconds_t(std::max<long>(micros % 1'000'000, 1))};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);  // of connect() as well
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const sockaddr_un at = folder.address(name);
    int result = 0;
    do result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
    while (result != 0 && errno == EINTR && !deadline.passed());
    if (result == 0) return socket;
    if (errno == EAGAIN || errno == EINTR) throw TimeoutError(fmt::format("the session '{}' does not answer", name));
    // A socket that nobody listens at was left behind by a process that died.
    if (errno != ENOENT && errno != ECONNREFUSED)
      throw SystemError(fmt::format("connecting to the session '{}' in {}", name, path), errno);
  }
  return Fd();
}

}  // namespace

Listener Session::listen(const std::string& name) { return Listener(name); }

Session& Session::attach(const std::string& name, std::chrono::nanoseconds timeout) {
  RendezvousFolder::check_name(name);
  std::lock_guard lock(attaching);
  if (exists())
    throw std::logic_error(
        "this process is part of a session already: attach has to come before any other use of shoal");
  Fd socket = connect_to(name, timeout);
  if (!socket)
    throw Error(
        fmt::format("no session listens under the name '{}' (looked in {}): its root has to call "
                    "Session::listen first, as the same user",
                    name, fmt::join(RendezvousFolder::candidates(), ", ")));
  SHOAL_KILL_POINT("attach.connected");
  AttachRequest request;
  request.heap_version = SessionLayout::kVersion;
  AttachAnswer answer = ask_to_attach(socket.get(), request);
  const AttachReply& reply = answer.reply;
  if (reply.outcome == AttachReply::kOtherUser)
    throw Error(
        fmt::format("the session '{}' belongs to user {}, this process to user {}", name, reply.user, ::geteuid()));
  if (reply.outcome == AttachReply::kOtherVersion || reply.heap_version != SessionLayout::kVersion)
    throw Error(
        fmt::format("the session '{}' has memory of version {}, this program knows version {}: both have to be "
                    "built with the same shoal",
                    name, reply.heap_version, SessionLayout::kVersion));
  if (reply.outcome == AttachReply::kNoMemory)
    throw Error(
        fmt::format("process {}, which listens under the name '{}', has closed the descriptors of its session: nobody "
                    "can attach through it any more",
                    reply.pid, name));
  if (reply.outcome != AttachReply::kWelcome)
    throw Error(
        fmt::format("process {}, which listens under the name '{}', did not understand this one", reply.pid, name));
  SessionCore& session = SessionCore::join({answer.memory.get(), answer.liveness.get()});
  answer.memory.release();
  answer.liveness.release();
  SHOAL_KILL_POINT("attach.joined");
  session.describe_self("attached", -1);
  log_info("attached to the session '{}' of process {}", name, reply.pid);
  std::atexit([] { SessionCore::current().leave(); });
  return session;
}

}  // namespace shoal
