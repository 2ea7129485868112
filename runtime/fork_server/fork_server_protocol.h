// What is said between the fork server and those that want processes of it.
#pragma once

#include <shoal/internal/runtime/ticket/child_blocks.h>
#include <shoal/ipc/fd.h>
#include <shoal/runtime/exit_status.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <vector>

namespace shoal {

/// Asks for one process, or says how many spares to keep. The first carries three descriptors: the socket for the
/// replies, and a pidfd and the lifeline of the asking process, with either of which the child shall die.
struct ForkRequest {
  static constexpr std::uint32_t kMagic = 0x6b726f66;  // "fork"
  static constexpr std::size_t kDescriptors = 3;
  std::uint32_t magic = kMagic;
  std::int32_t spares = -1;      // -1: a process is wanted
  std::uint32_t parent_tag = 0;  // ProcessTag of the asking process
  std::uint32_t reserved = 0;
  ChildBlocks blocks;
};

/// First reply; carries the child's pidfd if there is a child.
struct ForkReply {
  std::int32_t error = 0;    // errno of fork
  std::int32_t threads = 0;  // not 0: refused, since the fork server has that many threads
  pid_t pid = 0;
};

/// Second and last reply, when the child has ended.
struct EndReply {
  ExitStatus status;
};

/// A pair of connected sockets that keep messages apart.
struct SocketPair {
  Fd first, second;
};
SocketPair make_socket_pair();

/// False with errno set: EPIPE or ECONNRESET if the other side is gone. Never raises SIGPIPE.
bool send_message(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> descriptors) noexcept;

/// Takes the next message; false with errno set, and errno 0 at the end of the stream, or if the message
/// has another size.
bool receive_message(const Fd& socket, std::span<std::byte> bytes, std::vector<Fd>& descriptors) noexcept;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace shoal
