#include <shoal/internal/workers/train/gloo/opened_sockets.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace shoal {
namespace {

/// The sockets to other hosts that this process has.
struct Known {
  std::set<int> own;          // shoal's
  std::map<int, int> opened;  // duplicates of a library's, and its own descriptors
  std::set<int> served;       // ports of this process, where a library takes connections
};

constinit std::mutex mutex;  // of these; forks wait for it
constinit Known* the_known = nullptr;

/// Never destroyed: groups with static lifetime use it. With the mutex.
Known& known() {
  if (!the_known) the_known = new Known;
  return *the_known;
}

std::set<int> all_descriptors() {
  std::set<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return found;
  while (const dirent* entry = ::readdir(folder.get())) {
    const int number = entry->d_name[0] == '.' ? -1 : std::atoi(entry->d_name);
    if (number >= 0 && number != ::dirfd(folder.get())) found.insert(number);
  }
  return found;
}

/// By number, with device and inode: a number that was another file's may be a library's next. Without those that are shoal's
/// own.
std::map<int, std::pair<std::uint64_t, std::uint64_t>> open_descriptors() {
  std::lock_guard lock(mutex);
  std::map<int, std::pair<std::uint64_t, std::uint64_t>> found;
  for (const int number : all_descriptors()) {
    struct stat file{};
    if (!known().own.contains(number) && ::fstat(number, &file) == 0) found[number] = {file.st_dev, file.st_ino};
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

bool is_same_file(int one, int other) noexcept {
  struct stat a{}, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// In a fork's child. A connection ends when nobody has it open any more: with a copy in a child the other hosts would not
/// learn of this process's death, nor another program get its port. The numbers stay taken, by a file without content:
/// the copies of those objects that have them may close them.
void give_up_copies() noexcept {
  const Fd nothing = lift(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  const auto give_up = [&](int number) {
    if (!nothing || ::dup3(nothing.get(), number, O_CLOEXEC) < 0) ::close(number);
  };
  for (const auto& [duplicate, library] : the_known->opened) {
    if (is_same_file(duplicate, library)) give_up(library);  // another file has the number otherwise
    give_up(duplicate);
  }
  for (const int own : the_known->own) give_up(own);
  if (!the_known->served.empty())
    for (const int number : all_descriptors())
      if (the_known->served.contains(side(number, ::getsockname).port)) give_up(number);
  *the_known = {};
}

[[gnu::init_priority(101)]] const AtFork at_fork({
    .before = ForkWaitsFor<mutex>::lock,
    .in_parent = ForkWaitsFor<mutex>::unlock,
    .in_child =
        []() noexcept {
          if (the_known) give_up_copies();
          ForkWaitsFor<mutex>::unlock();
        },
});

}  // namespace

SocketAddress own_side(int descriptor) { return side(descriptor, ::getsockname); }
SocketAddress other_side(int descriptor) { return side(descriptor, ::getpeername); }

OpenedSockets::OpenedSockets() : before_(open_descriptors()) {}

template <class Accept>
void OpenedSockets::find_if(Accept accept) {
  for (const auto& [number, file] : open_descriptors()) {
    if (const auto known_before = before_.find(number); known_before != before_.end() && known_before->second == file)
      continue;
    SocketAddress other = other_side(number);
    if (other.address.empty() || !accept(other, own_side(number))) continue;
    // Programs that this process starts would keep it open: Gloo does not say this by itself.
    (void)::fcntl(number, F_SETFD, FD_CLOEXEC);
    Fd duplicate(::fcntl(number, F_DUPFD_CLOEXEC, 3));
    if (!duplicate) continue;
    std::lock_guard lock(mutex);
    known().opened[duplicate.get()] = number;
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

std::vector<SocketAddress> OpenedSockets::others_at(int port) {
  std::vector<SocketAddress> others;
  for (const auto& [number, file] : open_descriptors()) {
    SocketAddress other = other_side(number);
    if (!other.address.empty() && own_side(number).port == port) others.push_back(std::move(other));
  }
  return others;
}

void OpenedSockets::forget() {
  std::lock_guard lock(mutex);
  for (const Socket& socket : sockets_) known().opened.erase(socket.descriptor.get());
  sockets_.clear();
}

void OpenedSockets::serves(int port) {
  std::lock_guard lock(mutex);
  known().served.insert(port);
}

void OpenedSockets::keep_alive(std::chrono::milliseconds at_most) const {
  for (const Socket& socket : sockets_) shoal::keep_alive(socket.descriptor.get(), at_most);
}

void ask_whether_alive(int number, std::chrono::milliseconds at_most) {
  const int seconds = std::max(3, int(at_most.count() / 1000));
  const int on = 1, idle = std::max(1, seconds / 3), interval = std::max(1, seconds / 6), probes = 4;
  // Where the kernel refuses one, the others still help; TCP's own time-out is what remains.
  (void)::setsockopt(number, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)::setsockopt(number, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  (void)::setsockopt(number, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  (void)::setsockopt(number, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void keep_alive(int number, std::chrono::milliseconds at_most) {
  ask_whether_alive(number, at_most);
  // What was sent, and what is asked, unanswered for so long: the connection ends.
  const unsigned unanswered = unsigned(at_most.count());
  (void)::setsockopt(number, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}

OwnSocket::OwnSocket(const std::function<Fd()>& open) {
  std::lock_guard lock(mutex);
  descriptor_ = open();
  if (descriptor_) known().own.insert(descriptor_.get());
}

OwnSocket& OwnSocket::operator=(OwnSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void OwnSocket::close() noexcept {
  if (!descriptor_) return;
  std::lock_guard lock(mutex);
  known().own.erase(descriptor_.get());
  descriptor_.reset();
}

bool OpenedSockets::is_released(const Socket& socket) noexcept {
  return !is_same_file(socket.library, socket.descriptor.get());  // another file may have the number by now
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
