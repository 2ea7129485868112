#include <shoal/internal/ipc/names/attach_protocol.h>

#include <errno.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>

namespace shoal {
namespace {

constexpr int kDescriptors = 2;

/// A message with room for the session's descriptors.
struct Packet {
  explicit Packet(AttachReply& reply) : part{&reply, sizeof reply} {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }

  iovec part;
  msghdr message{};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
};

/// One that connects and says nothing keeps the others waiting for so long.
constexpr std::chrono::seconds kAnswerPatience{1};

/// A system call on the connection, made again after a signal, as `shoal stacks` sends one to each thread; not after the
/// deadline. Each call has all the time that the socket allows.
ssize_t through_signals(Deadline deadline, auto&& call) noexcept {
  for (;;)
    if (const ssize_t result = call(); result >= 0 || errno != EINTR || deadline.passed()) return result;
}

AttachReply reply_to(int connection, Deadline deadline) noexcept {
  AttachReply reply;
  reply.heap_version = SessionLayout::kVersion;
  reply.user = ::geteuid();
  reply.pid = ::getpid();
  reply.outcome = AttachReply::kNoRequest;
  // Read first, whoever it is: a socket that is closed with something unread loses what was answered.
  AttachRequest request;
  const ssize_t got = through_signals(deadline, [&] { return ::recv(connection, &request, sizeof request, 0); });
  const bool asked = got == sizeof request && request.magic == AttachRequest::kMagic;
  // The folder lets nobody else in; this holds even if its mode was changed.
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != reply.user) {
    reply.outcome = AttachReply::kOtherUser;
    return reply;
  }
  if (!asked) return reply;
  const bool same = request.heap_version == SessionLayout::kVersion;
  reply.outcome = same ? AttachReply::kWelcome : AttachReply::kOtherVersion;
  return reply;
}

}  // namespace

void answer_attach(int connection, SessionCore::Descriptors session) noexcept {
  const timeval patience{kAnswerPatience.count(), 0};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  SHOAL_KILL_POINT("listen.accepted");
  AttachReply reply = reply_to(connection, Deadline::after(kAnswerPatience));
  if (reply.outcome == AttachReply::kWelcome && (session.memory < 0 || session.liveness < 0))
    reply.outcome = AttachReply::kNoMemory;
  SHOAL_KILL_POINT("listen.before_reply");
  Packet packet(reply);
  if (reply.outcome == AttachReply::kWelcome) {
    cmsghdr* header = CMSG_FIRSTHDR(&packet.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(kDescriptors * sizeof(int));
    const int descriptors[kDescriptors] = {session.memory, session.liveness};
    ::memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
  } else {
    packet.message.msg_controllen = 0;
  }
  through_signals(Deadline::after(kAnswerPatience),
                  [&] { return ::sendmsg(connection, &packet.message, MSG_NOSIGNAL); });
  SHOAL_KILL_POINT("listen.replied");
}

AttachAnswer ask_to_attach(int connection, const AttachRequest& request) {
  const ssize_t sent =
      through_signals(Deadline::never(), [&] { return ::send(connection, &request, sizeof request, MSG_NOSIGNAL); });
  // It may have been refused, and closed, before this arrives: the answer is there all the same.
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) throw SystemError("asking to attach to a session", errno);
  AttachAnswer answer;
  Packet packet(answer.reply);
  const ssize_t got =
      through_signals(Deadline::never(), [&] { return ::recvmsg(connection, &packet.message, MSG_CMSG_CLOEXEC); });
  const int error = errno;
  if (got > 0)
    if (cmsghdr* header = CMSG_FIRSTHDR(&packet.message);
        header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(kDescriptors * sizeof(int))) {
      int descriptors[kDescriptors];
      ::memcpy(descriptors, CMSG_DATA(header), sizeof descriptors);
      answer.memory = lift(Fd(descriptors[0]));
      answer.liveness = lift(Fd(descriptors[1]));
    }
  SHOAL_KILL_POINT("attach.received");
  if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK))
    throw TimeoutError("the process that listens there does not answer: it is stopped, or has many others to answer");
  if (got == 0 || (got < 0 && error == ECONNRESET))
    throw Error("the process that listened there ended before it answered");
  if (got < 0) throw SystemError("attaching to a session", error);
  const AttachReply& reply = answer.reply;
  if (got != sizeof reply || reply.magic != AttachRequest::kMagic ||
      (reply.outcome == AttachReply::kWelcome && !(answer.memory && answer.liveness)))
    throw Error("what listens there is no session of shoal");
  return answer;
}

}  // namespace shoal
