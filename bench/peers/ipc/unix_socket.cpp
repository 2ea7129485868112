// Peer: a Unix socket pair. Small messages as packets, larger ones as a stream of bytes.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "bench/peers/ipc/transport.h"

namespace {

using namespace shoal::bench;

class SocketEnd : public End {
 public:
  explicit SocketEnd(int socket) : socket_(socket) {}
  void send(std::span<const std::byte> message) override {
    for (; !message.empty(); message = message.subspan(check(::send(socket_, message.data(), message.size(), 0)))) {
    }
  }
  void receive(std::span<std::byte> into) override {
    for (; !into.empty(); into = into.subspan(check(::recv(socket_, into.data(), into.size(), 0)))) {
    }
  }

 private:
  static std::size_t check(ssize_t moved) {
    if (moved < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "socket");
    if (moved == 0) throw std::runtime_error("the other end of the socket is gone");
    return moved < 0 ? 0 : std::size_t(moved);
  }
  int socket_;
};

class SocketWay : public Way {
 public:
  explicit SocketWay(const WayOptions& options) {
    constexpr std::size_t kLargestPacket = 65536;
    int type = options.largest <= kLargestPacket ? SOCK_SEQPACKET : SOCK_STREAM;
    if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends_) != 0)
      throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  ~SocketWay() override {
    for (int end : ends_) ::close(end);
  }
  std::unique_ptr<End> producer(int) override { return std::make_unique<SocketEnd>(ends_[0]); }
  std::unique_ptr<End> consumer(int) override { return std::make_unique<SocketEnd>(ends_[1]); }

 private:
  int ends_[2];
};

}  // namespace

int main(int argc, char** argv) {
  return answer(argc > 1 ? argv[1] : "", {.name = "unix socket", .make = [](const WayOptions& options) {
                                            return std::make_unique<SocketWay>(options);
                                          }});
}
