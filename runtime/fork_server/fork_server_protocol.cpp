#include <shoal/internal/runtime/fork_server/fork_server_protocol.h>

#include <errno.h>
#include <shoal/ipc/error.h>
#include <sys/socket.h>

#include <cstring>

namespace shoal {
namespace {

constexpr std::size_t kMostDescriptors = 4;

union ControlBuffer {
  cmsghdr align;
  char bytes[CMSG_SPACE(kMostDescriptors * sizeof(int))];
};

}  // namespace

SocketPair make_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw SystemError("making a pair of sockets", errno);
  SocketPair pair{Fd(ends[0]), Fd(ends[1])};
  pair.first = lift(std::move(pair.first));
  pair.second = lift(std::move(pair.second));
  if (!pair.first || !pair.second) throw SystemError("making a pair of sockets", errno);
  return pair;
}

bool send_message(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> descriptors) noexcept {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

bool receive_message(const Fd& socket, std::span<std::byte> bytes, std::vector<Fd>& descriptors) noexcept {
  iovec part{bytes.data(), bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got;
  while ((got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC)) < 0)
    if (errno != EINTR) return false;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      // One that cannot be lifted is missing then, as one is that the kernel had no room for.
      if (Fd received = lift(Fd(descriptor))) descriptors.push_back(std::move(received));
    }
  }
  errno = 0;
  return got == ssize_t(bytes.size()) && !(message.msg_flags & MSG_TRUNC);
}

}  // namespace shoal
