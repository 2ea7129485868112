#include <shoal/internal/ipc/descriptor/offers.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace shoal {
namespace {

constinit OnePerProcess<DescriptorOffers> the_offers;
constinit std::mutex mutex;                  // of the table
DescriptorOffers* parents_offers = nullptr;  // in a fork's child

/// In the abstract name space: no file is left behind by whoever is killed. Other users may connect, too; without
/// the secret they get nothing.
std::pair<sockaddr_un, socklen_t> address_of(ProcessTag process) {
  const OwnFile& memory = SessionCore::current().memory_file();  // its inode names the session on this machine
  std::string name = fmt::format("shoal-{:x}-{:x}-{:08x}", memory.device(), memory.inode(), process.word());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return {address, socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

Fd make_socket(const char* what_for) {
  Fd made = lift(Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
  if (!made)
    throw SystemError(fmt::format("making a socket for {}", what_for), errno, "raise the limit of descriptors");
  return made;
}

/// Through signals, as `shoal stacks` sends one to each thread.
bool wait_readable(int descriptor, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  for (;;) {
    pollfd entry{descriptor, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left(timeout));
    const int ready = ::poll(&entry, 1, int(left.count()));
    if (ready >= 0 || errno != EINTR) return ready == 1;
  }
}

/// Whether the other end of the connection is the sender's. Anyone may listen at a dead process's abstract address:
/// another user's process would hand out a file of its own choice.
bool is_connected_to(int connection, SessionCore& session, ProcessTag sender) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  if (peer.uid == ::geteuid() || peer.uid == 0) return true;
  // One that has given up root's rights: while it lives, nobody else has its pid.
  return peer.pid == session.record(sender.slot()).pid.load() && session.is_alive(sender);
}

/// What comes back: 0 with a descriptor, else an errno. ENOENT: no such offer.
using Answer = std::int32_t;

/// Does not wait: nothing else was written to this connection.
void send_answer(int connection, int descriptor) {
  Answer error = descriptor >= 0 ? 0 : ENOENT;
  iovec bytes{&error, sizeof error};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  if (error == 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  if (::sendmsg(connection, &message, kFlags) >= 0) return;
  error = errno;  // ETOOMANYREFS, ENOMEM
  message.msg_control = nullptr;
  message.msg_controllen = 0;
  (void)!::sendmsg(connection, &message, kFlags);  // a receiver that is gone needs nothing
}

/// Nothing if the sender has closed the connection, or knows of no such offer.
Fd receive_descriptor(int connection, pid_t sender) {
  Answer error = ENOENT;
  iovec bytes{&error, sizeof error};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != sizeof error || error == ENOENT) return {};
  if (error != 0)
    throw SystemError(fmt::format("getting a descriptor of the process that sent it (pid {}), which cannot", sender),
                      error, "raise its limit of descriptors (ulimit -n)");
  int descriptor = -1;
  if (cmsghdr* header = CMSG_FIRSTHDR(&message); header && header->cmsg_type == SCM_RIGHTS)
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  else  // the answer came and the descriptor did not: there was no room for it in this process's table
    throw SystemError("receiving a descriptor", EMFILE, "raise the limit of descriptors (ulimit -n)");
  Fd received = lift(Fd(descriptor));
  if (!received) throw SystemError("receiving a descriptor", errno, "raise the limit of descriptors (ulimit -n)");
  return received;
}

}  // namespace

struct DescriptorOffers::AroundFork {
  static void in_child() noexcept {
    parents_offers = the_offers.if_there();
    if (parents_offers) parents_offers->close_inherited();
    the_offers.forget();
    ForkWaitsFor<mutex>::unlock();
  }
  static const AtFork steps;
};

[[gnu::init_priority(101)]] const AtFork DescriptorOffers::AroundFork::steps({
    .before = &ForkWaitsFor<mutex>::lock,
    .in_parent = &ForkWaitsFor<mutex>::unlock,
    .in_child = &AroundFork::in_child,
});

/// With the child's copy of the socket the kernel would go on taking connections when the parent is dead, for nobody.
/// The holds are the parent's.
void DescriptorOffers::close_inherited() noexcept {
  listener_.reset();
  for (Offer& offer : offers_) offer.duplicate.reset();
  first_offer_.reset();
  spare_.reset();
}

void DescriptorOffers::let_go_of_parents() noexcept {
  if (parents_offers) std::exchange(parents_offers, nullptr)->offers_.clear();
}

DescriptorOffers& DescriptorOffers::current() {
  if (DescriptorOffers* there = the_offers.if_there()) return *there;
  Session::current().self();    // may take long, and is not for a fork to wait for
  std::lock_guard lock(mutex);  // a child that was forked before it is there would keep its socket
  return the_offers.get();
}

DescriptorOffers::DescriptorOffers() {
  Fd event = lift(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!event) throw SystemError("making an eventfd", errno, "raise the limit of descriptors (ulimit -n)");
  first_offer_ = OwnFile(std::move(event), "an eventfd of descriptors in messages");
  spare_ = make_spare();
  listener_ = OwnFile(make_socket("descriptors in messages"), "the socket for descriptors in messages");
  auto [address, length] = address_of(Session::current().self());
  const int listener = listener_.descriptor();
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener, 64) != 0)
    throw SystemError("listening for processes that fetch descriptors", errno);
  start_service_thread("shoal-offers", [this] { serve(); });
}

OwnFile DescriptorOffers::make_spare() const {
  return OwnFile(Fd(::fcntl(first_offer_.descriptor_if_open(), F_DUPFD_CLOEXEC, 3)), "a spare descriptor");
}

void DescriptorOffers::serve() {
  constexpr int kForgetEvery = 1000, kForever = -1;  // ms
  bool some_left = false;
  // If the program has closed them, nobody can fetch anything, and offer() says so.
  while (listener_.is_open() && first_offer_.is_open()) {
    pollfd entries[] = {{listener_.descriptor_if_open(), POLLIN, 0}, {first_offer_.descriptor_if_open(), POLLIN, 0}};
    ::poll(entries, 2, some_left ? kForgetEvery : kForever);
    std::uint64_t count;
    if (entries[1].revents != 0 && ::read(first_offer_.descriptor_if_open(), &count, sizeof count) < 0) continue;
    if (entries[0].revents != 0) take_connection();
    some_left = forget_fetched();
  }
}

/// A process without room for another descriptor hands out those it has all the same: it keeps one to be able to.
void DescriptorOffers::take_connection() {
  constexpr int kBetweenTries = 100;  // ms: whoever connected keeps waiting, and this thread must not spin
  auto accept = [&] { return lift(Fd(::accept4(listener_.descriptor_if_open(), nullptr, nullptr, SOCK_CLOEXEC))); };
  Fd connection = accept();
  if (!connection && (errno == EMFILE || errno == ENFILE) && spare_.is_open()) {
    spare_.reset();
    connection = accept();
  }
  if (connection)
    answer(connection.get());
  else if (errno != EINTR && errno != ECONNABORTED)
    ::poll(nullptr, 0, kBetweenTries);
  connection.reset();
  if (!spare_.is_open()) spare_ = make_spare();
}

void DescriptorOffers::answer(int connection) {
  constexpr std::chrono::seconds kPatience{1};  // one that connects and says nothing must not keep the others waiting
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return;
  if (peer.uid != ::geteuid() && peer.uid != 0) return;
  Secret secret{};
  if (!wait_readable(connection, kPatience) || ::recv(connection, secret, sizeof secret, 0) != sizeof secret) return;
  std::lock_guard lock(mutex);
  send_answer(connection, find(secret));
}

int DescriptorOffers::find(const Secret& secret) const {
  for (const Offer& offer : offers_) {
    auto& layout = *reinterpret_cast<const DescriptorOfferLayout*>(offer.block.data());
    if (std::memcmp(layout.secret, secret, sizeof secret) == 0) return offer.duplicate.descriptor_if_open();
  }
  return -1;
}

/// An offer whose only hold is the table's is in no message any more. False if none is left.
bool DescriptorOffers::forget_fetched() {
  const BlockMemory memory = Session::current().heap().memory();
  std::lock_guard lock(mutex);
  std::erase_if(offers_, [&](const Offer& offer) {
    int holds = 0;
    memory.for_each_hold(offer.block.block(), [&](std::uint32_t, std::atomic<std::uint32_t>& hold) {
      // acquire: pairs with the store that let go of it. A hold that is missed here is seen a second later.
      holds += hold.load(std::memory_order_acquire) != 0;
      return holds < 2;
    });
    return holds < 2;
  });
  return !offers_.empty();
}

std::uint32_t DescriptorOffers::offer(int descriptor, Encoder& message) {
  listener_.descriptor();  // throws if the program has closed it: the receiver would wait for nothing
  const int first_offer = first_offer_.descriptor();
  Fd duplicate(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!duplicate)
    throw SystemError(fmt::format("duplicating descriptor {} to send it", descriptor), errno,
                      "raise the limit of descriptors (ulimit -n)");
  Offer offer{OwnFile(std::move(duplicate), "a descriptor that was sent"),
              allocate_shared(sizeof(DescriptorOfferLayout))};
  auto* layout = new (offer.block.data()) DescriptorOfferLayout{};
  layout->magic = DescriptorOfferLayout::kMagic;
  layout->version = DescriptorOfferLayout::kVersion;
  layout->sender = Session::current().self().word();
  if (::getrandom(layout->secret, sizeof layout->secret, 0) != sizeof layout->secret)
    throw SystemError("drawing a random number", errno);
  const std::uint32_t handle = message.add(offer.block);  // first: an offer that nobody else holds is forgotten
  std::lock_guard lock(mutex);
  offers_.push_back(std::move(offer));
  SHOAL_KILL_POINT("descriptor.offer.entered");
  std::uint64_t one = 1;
  if (::write(first_offer, &one, sizeof one) != sizeof one)
    throw SystemError("waking the thread that hands out descriptors", errno);
  return handle;
}

Fd DescriptorOffers::fetch(const Hold& offer) {
  if (offer.size() != sizeof(DescriptorOfferLayout)) throw DecodeError("this block of shared memory is no descriptor");
  auto& layout = *reinterpret_cast<const DescriptorOfferLayout*>(offer.data());
  if (layout.magic != DescriptorOfferLayout::kMagic || layout.version != DescriptorOfferLayout::kVersion)
    throw DecodeError("this block of shared memory is no descriptor of this version");
  SessionCore& session = SessionCore::current();
  const ProcessTag sender = ProcessTag::from_word(layout.sender);
  if (sender == session.self()) {
    const DescriptorOffers& offers = current();
    std::lock_guard lock(mutex);
    Fd own(::fcntl(offers.find(layout.secret), F_DUPFD_CLOEXEC, 3));
    if (!own)
      throw SystemError("duplicating a descriptor sent by this process", errno,
                        "raise the limit of descriptors (ulimit -n)");
    return own;
  }
  auto gone = [&] {
    return PeerDied(fmt::format("the process that sent a descriptor (pid {}) ended before it was received",
                                session.record(sender.slot()).pid.load()));
  };
  constexpr std::chrono::seconds kPatience{30};  // the sender is stopped, or as good as
  const Deadline deadline = Deadline::after(kPatience);
  auto check_patience = [&] {
    if (deadline.passed())
      throw TimeoutError(fmt::format("the process that sent a descriptor (pid {}) does not answer",
                                     session.record(sender.slot()).pid.load()));
  };
  Fd connection = make_socket("fetching a descriptor");
  auto [address, length] = address_of(sender);
  // If more wait for the sender than it has room for, connect() waits as long as a send would: a slice at a time.
  const timeval slice{0, std::chrono::microseconds(kLivenessSlice).count()};
  ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof slice);
  while (::connect(connection.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    const int error = errno;
    if (error == ECONNREFUSED) throw gone();  // nobody listens there
    if (error != EINTR && error != EAGAIN) throw SystemError("asking another process for a descriptor", error);
    if (!session.is_alive(sender)) throw gone();
    check_patience();
  }
  if (!is_connected_to(connection.get(), session, sender)) throw gone();
  ::send(connection.get(), layout.secret, sizeof layout.secret, MSG_NOSIGNAL);
  SHOAL_KILL_POINT("descriptor.fetch.asked");
  // Not its end of the connection alone tells that it is gone: a child that it forked just then has that, too.
  while (!wait_readable(connection.get(), kLivenessSlice)) {
    if (!session.is_alive(sender) && !wait_readable(connection.get(), std::chrono::milliseconds(0))) throw gone();
    check_patience();
  }
  Fd received = receive_descriptor(connection.get(), session.record(sender.slot()).pid.load());
  if (!received) throw gone();
  return received;
}

}  // namespace shoal
