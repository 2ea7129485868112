#include <shoal/internal/workers/train/gloo/opened_sockets.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

namespace shoal {
namespace {

struct OwnSockets {
  std::mutex mutex;
  std::set<int> descriptors;
};

/// Never destroyed: groups with static lifetime use it.
OwnSockets& own_sockets() {
  static OwnSockets& sockets = *new OwnSockets;
  return sockets;
}

/// Without those that are shoal's own, whose numbers a library may get next.
std::set<int> open_descriptors() {
  std::set<int> found;
  OwnSockets& own = own_sockets();
  std::lock_guard lock(own.mutex);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return found;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int number = entry->d_name[0] == '.' ? -1 : std::atoi(entry->d_name);
    if (number >= 0 && number != ::dirfd(folder.get()) && !own.descriptors.contains(number)) found.insert(number);
  }
  return found;
}

SocketAddress side(int descriptor, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (ask(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& narrow = reinterpret_cast<sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &narrow.sin_addr, text, sizeof text);
    return {text, ntohs(narrow.sin_port)};
  }
  if (address.ss_family != AF_INET6) return {};
  const auto& wide = reinterpret_cast<sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&wide.sin6_addr))  // what a socket for both versions says of an IPv4 address
    ::inet_ntop(AF_INET, wide.sin6_addr.s6_addr + 12, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, &wide.sin6_addr, text, sizeof text);
  return {text, ntohs(wide.sin6_port)};
}

}  // namespace

SocketAddress own_side(int descriptor) { return side(descriptor, ::getsockname); }
SocketAddress other_side(int descriptor) { return side(descriptor, ::getpeername); }

OpenedSockets::OpenedSockets() : before_(open_descriptors()) {}

template <class Accept>
void OpenedSockets::find_if(Accept accept) {
  for (const int number : open_descriptors()) {
    if (before_.contains(number)) continue;
    SocketAddress other = other_side(number);
    if (other.address.empty() || !accept(other, own_side(number))) continue;
    if (Fd duplicate = Fd(::fcntl(number, F_DUPFD_CLOEXEC, 3)))
      sockets_.push_back({std::move(duplicate), std::move(other.address), number});
  }
  before_ = open_descriptors();  // the duplicates are no news for a second look
}

void OpenedSockets::find(const std::set<std::string>& addresses, int not_of_port) {
  find_if([&](const SocketAddress& other, const SocketAddress& own) {
    return addresses.contains(other.address) && other.port != not_of_port && own.port != not_of_port;
  });
}

void OpenedSockets::find(int port) {
  find_if([&](const SocketAddress& other, const SocketAddress&) { return other.port == port; });
}

void OpenedSockets::keep_alive(std::chrono::milliseconds at_most) const {
  for (const Socket& socket : sockets_) shoal::keep_alive(socket.descriptor.get(), at_most);
}

void keep_alive(int number, std::chrono::milliseconds at_most) {
  const int seconds = std::max(3, int(at_most.count() / 1000));
  const int on = 1, idle = std::max(1, seconds / 3), interval = std::max(1, seconds / 6), probes = 4;
  const unsigned unanswered = unsigned(at_most.count());
  // Where the kernel refuses one, the others still help; TCP's own time-out is what remains.
  (void)::setsockopt(number, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)::setsockopt(number, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  (void)::setsockopt(number, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  (void)::setsockopt(number, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  // What was sent, and what is asked, unanswered for so long: the connection ends.
  (void)::setsockopt(number, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}

OwnSocket::OwnSocket(const std::function<Fd()>& open) {
  OwnSockets& own = own_sockets();
  std::lock_guard lock(own.mutex);
  descriptor_ = open();
  if (descriptor_) own.descriptors.insert(descriptor_.get());
}

OwnSocket& OwnSocket::operator=(OwnSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void OwnSocket::close() noexcept {
  if (!descriptor_) return;
  OwnSockets& own = own_sockets();
  std::lock_guard lock(own.mutex);
  own.descriptors.erase(descriptor_.get());
  descriptor_.reset();
}

bool OpenedSockets::is_released(const Socket& socket) noexcept {
  struct stat own{}, theirs{};  // another file may have the number by now: each connection has its own inode
  return ::fstat(socket.library, &theirs) != 0 || ::fstat(socket.descriptor.get(), &own) != 0 ||
         own.st_dev != theirs.st_dev || own.st_ino != theirs.st_ino;
}

bool OpenedSockets::has_ended() const noexcept {
  for (const Socket& socket : sockets_) {
    pollfd polled{socket.descriptor.get(), POLLRDHUP, 0};
    if (::poll(&polled, 1, 0) > 0) return true;
  }
  return false;
}

void OpenedSockets::shut_down() const noexcept {
  for (const Socket& socket : sockets_) ::shutdown(socket.descriptor.get(), SHUT_RDWR);
}

void ignore_broken_pipes() {
  struct sigaction now{};
  if (::sigaction(SIGPIPE, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;
  now.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &now, nullptr);
}

}  // namespace shoal
