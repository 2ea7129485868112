#include <shoal/internal/workers/train/hosts/host_mail.h>

#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/workers/train/hosts/numeric_address.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>

namespace shoal {
namespace {

using Clock = std::chrono::steady_clock;

/// How much of one connection is read before the others have their turn.
constexpr std::size_t kTurnBytes = 4 << 20;
/// How long a rank that leaves goes on sending to one that takes nothing.
constexpr std::chrono::seconds kStuck{2};
/// How often it looks whether it may go.
constexpr std::chrono::milliseconds kClosing{20};
/// How long nobody is taken in where there was no descriptor.
constexpr std::chrono::milliseconds kNoDescriptor{100};

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// The message, the sizes of the blocks that it refers to, the blocks.
std::vector<std::byte> packed(Encoder& message) {
  const BlockMemory memory = SessionCore::current().heap().memory();
  std::vector<std::byte> bytes;
  append(bytes, std::uint64_t(message.bytes().size()));
  append(bytes, std::uint64_t(message.handles().size()));
  for (const HoldRef& handle : message.handles()) {
    const BlockHeader& header = memory.header(handle.block);
    const BlockType type =
        header.type.load(std::memory_order_relaxed);  // relaxed: the block is held, and stays what it is
    if (type != BlockType::kBytes && type != BlockType::kReadOnly)
      throw std::invalid_argument(
          "a value with a queue, a lock or another shared object: it stays on its host, and the receiver is on "
          "another");
    append(bytes, header.size);
  }
  bytes.insert(bytes.end(), message.bytes().begin(), message.bytes().end());
  for (const HoldRef& handle : message.handles()) {
    const std::byte* begin = memory.payload(handle.block);
    bytes.insert(bytes.end(), begin, begin + memory.header(handle.block).size);
  }
  return bytes;
}

/// The same as a message of this host: the blocks are in its heap.
Mailbox::Message unpacked(std::vector<std::byte> bytes) {
  Mailbox::Message message{nullptr, nullptr, {}, 0, {}, std::move(bytes)};
  Decoder head({message.copied.data(), message.copied.size()}, {});
  const auto size = head.read<std::uint64_t>();
  const auto count = head.read<std::uint64_t>();
  std::vector<std::uint64_t> sizes;
  sizes.reserve(std::min<std::uint64_t>(count, message.copied.size() / sizeof count));
  for (std::uint64_t i = 0; i < count; ++i) sizes.push_back(head.read<std::uint64_t>());
  const auto text = head.read(size);
  Decoder::Handles handles;
  for (const std::uint64_t each : sizes) {
    const auto from = head.read(each);
    if (message.failure) continue;
    try {
      const Hold& hold = handles.emplace_back(allocate_shared(each));
      if (each != 0) std::memcpy(hold.data(), from.data(), each);
    } catch (const Error&) {  // no room in the heap: whoever asks for the message is told
      message.failure = std::current_exception();
      handles.clear();
    }
  }
  message.decoder = std::make_unique<Decoder>(text, std::move(handles));
  return message;
}

}  // namespace

struct HostMail::Frame {
  enum Kind : std::uint32_t { kHello = 1, kMessage, kOffer, kPull, kData, kGone, kBye };
  std::uint32_t kind = 0;
  std::int32_t rank = -1;    // kHello
  std::uint64_t number = 0;  // of an offer; kHello: the group's key
  std::uint64_t bytes = 0;   // that follow
};

struct HostMail::Connection {
  /// A piece that is sent: bytes of its own, and then others.
  struct Piece {
    std::vector<std::byte> own;
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t offer = 0;  // whose data they are
    std::uint64_t size() const { return own.size() + bytes; }
  };

  OwnSocket socket;
  int peer = -1;  // not known yet: it has connected, and said nothing
  bool connecting = false;
  bool ended = false;
  bool shut = false;  // this side has said its last
  bool bye = false;   // and the other side
  std::deque<Piece> out;
  std::uint64_t out_done = 0;  // of the first piece

  Frame frame;
  std::uint64_t got = 0;  // of the frame and what follows it
  std::vector<std::byte> body;

  void post(Frame frame, std::vector<std::byte> own = {}, const std::byte* data = nullptr, std::uint64_t bytes = 0,
            std::uint64_t offer = 0) {
    frame.bytes = own.size() + bytes;
    std::vector<std::byte> head;
    head.reserve(sizeof frame + own.size());
    append(head, frame);
    head.insert(head.end(), own.begin(), own.end());
    out.push_back({std::move(head), data, bytes, offer});
  }
};

struct HostMail::State {
  struct Peer {
    std::string address;
    int port = 0;
    std::string who;
    Gone gone = Gone::no;
    bool has_left = false;
    std::string why;  // of a death
    /// Two ranks that begin at once have two connections. All messages go on one of them, so that none overtakes another.
    Connection* messages = nullptr;
  };
  struct Offer {
    int to;
    const std::byte* data;
    std::uint64_t bytes;
    bool pulled = false;
  };
  struct Place {
    std::byte* data;
    std::uint64_t bytes;
  };

  State(Mailbox& of, int rank, std::uint64_t group_key, std::chrono::milliseconds timeout)
      : mailbox(of), me(rank), key(group_key), link_timeout(timeout) {}

  Mailbox& mailbox;
  int me;
  std::uint64_t key;
  std::chrono::milliseconds link_timeout;
  Fd wakes;
  OwnSocket listener;
  std::thread thread;
  std::mutex closing_mutex;

  mutable std::mutex mutex;  // of all below
  std::vector<Peer> peers;   // by rank
  std::vector<std::unique_ptr<Connection>> connections;
  std::map<std::uint64_t, Offer> offers;
  std::map<std::pair<int, std::uint64_t>, Place> pulls;  // by rank and number
  std::vector<std::function<void(Mailbox&)>> news;       // for the mailbox, told without the lock
  bool closing = false, at_once = false;
  Clock::time_point moved = Clock::now();  // when bytes went out last
  Clock::time_point accepts = moved;       // again: there was no descriptor

  Connection* connection_to(int rank);
  Connection& connected(int rank);
  void accept_all();
  void write(Connection& c);
  void read(Connection& c);
  std::uint64_t read_some(Connection& c, std::byte* to, std::uint64_t most);
  void begin_frame(Connection& c);
  void end_frame(Connection& c);
  void end(Connection& c, const std::string& why);
  void bury();
};

HostMail::HostMail(Mailbox& mailbox, const HostMap& map, std::uint64_t key, std::chrono::milliseconds link_timeout)
    : state_(std::make_unique<State>(mailbox, map.me, key, link_timeout)) {
  State& s = *state_;
  s.wakes = lift(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!s.wakes) throw SystemError("eventfd", errno);
  const NumericAddress address(map.hosts[std::size_t(map.my_host())].address, 0);
  s.listener = OwnSocket([&] { return address.socket(); });
  if (!s.listener || ::bind(s.listener.get(), address.info().ai_addr, address.info().ai_addrlen) != 0 ||
      ::listen(s.listener.get(), SOMAXCONN) != 0)
    throw SystemError("a port for messages between hosts", errno);
  port_ = own_side(s.listener.get()).port;
  for (int rank = 0; rank < map.world_size(); ++rank) {
    State::Peer peer;
    peer.address = map.hosts[std::size_t(map.places[std::size_t(rank)].host)].address;
    peer.who = map.describe(rank);
    s.peers.push_back(std::move(peer));
  }
}

HostMail::~HostMail() {
  close(true);
  if (!owner_.is_this()) {
    [[maybe_unused]] auto* left = state_.release();  // the parent's thread may hold its lock
  }
}

void HostMail::start(const std::vector<std::int32_t>& ports) {
  State& s = *state_;
  for (std::size_t rank = 0; rank < ports.size(); ++rank) s.peers[rank].port = ports[rank];
  s.thread = make_service_thread("shoal-mail", [this] { run(); });
}

void HostMail::wake() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(state_->wakes.get(), &one, sizeof one);
}

void HostMail::send(int to, Encoder& message) {
  std::vector<std::byte> bytes = packed(message);
  std::lock_guard lock(state_->mutex);
  if (state_->peers[std::size_t(to)].gone != Gone::no)
    return;  // start_send asks before; later than that it is not heard
  state_->connected(to).post({.kind = Frame::kMessage}, std::move(bytes));
  wake();
}

void HostMail::offer(int to, std::uint64_t number, Encoder& envelope, const std::byte* data, std::uint64_t bytes) {
  std::lock_guard lock(state_->mutex);
  if (state_->peers[std::size_t(to)].gone != Gone::no) return;
  state_->offers[number] = {to, data, bytes};
  state_->connected(to).post({.kind = Frame::kOffer, .number = number}, packed(envelope));
  wake();
}

bool HostMail::withdraw(std::uint64_t number) {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->offers.find(number);
  if (found == state_->offers.end()) return true;
  if (found->second.pulled) return false;
  state_->offers.erase(found);
  return true;
}

void HostMail::pull(int from, std::uint64_t number, std::byte* data, std::uint64_t bytes) {
  std::lock_guard lock(state_->mutex);
  Connection* connection = state_->connection_to(from);
  if (!connection) return;  // it is gone, and so will be the receive
  state_->pulls[{from, number}] = {data, bytes};
  connection->post({.kind = Frame::kPull, .number = number});
  wake();
}

void HostMail::cancel(int from, std::uint64_t number) {
  std::lock_guard lock(state_->mutex);
  state_->pulls.erase({from, number});
}

void HostMail::watch(int rank) {
  std::lock_guard lock(state_->mutex);
  if (state_->peers[std::size_t(rank)].gone != Gone::no || state_->connection_to(rank)) return;
  state_->connected(rank);
  wake();
}

HostMail::Gone HostMail::state_of(int rank) const {
  std::lock_guard lock(state_->mutex);
  return state_->peers[std::size_t(rank)].gone;
}

std::string HostMail::end_of(int rank) const {
  std::lock_guard lock(state_->mutex);
  const State::Peer& peer = state_->peers[std::size_t(rank)];
  return peer.who + (peer.gone == Gone::left ? " left the group" : " died, or cannot be reached any more: " + peer.why);
}

/// Any that is open, as answers may go on each.
HostMail::Connection* HostMail::State::connection_to(int rank) {
  for (const auto& connection : connections)
    if (connection->peer == rank && !connection->ended && !connection->shut) return connection.get();
  return nullptr;
}

/// The one that messages go on. Throws SystemError if there is no descriptor for it, which is no fault of the peer's.
HostMail::Connection& HostMail::State::connected(int rank) {
  Peer& peer = peers[std::size_t(rank)];
  if (peer.messages && !peer.messages->ended && !peer.messages->shut) return *peer.messages;
  peer.messages = connection_to(rank);
  if (peer.messages) return *peer.messages;
  const NumericAddress address(peer.address, peer.port);
  OwnSocket socket([&] { return address.socket(); });
  if (!socket) throw SystemError(fmt::format("a connection with {}", peer.who), errno);
  auto made = std::make_unique<Connection>();
  Connection& c = *made;
  connections.push_back(std::move(made));
  peer.messages = &c;
  c.peer = rank;
  c.connecting = true;
  c.post({.kind = Frame::kHello, .rank = me, .number = key});
  c.socket = std::move(socket);
  if (::connect(c.socket.get(), address.info().ai_addr, address.info().ai_addrlen) != 0 && errno != EINPROGRESS) {
    end(c, std::strerror(errno));
  } else {
    keep_alive(c.socket.get(), link_timeout);
  }
  return c;
}

void HostMail::State::accept_all() {
  for (;;) {
    auto connection = std::make_unique<Connection>();
    connection->socket =
        OwnSocket([&] { return lift(Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))); });
    if (!connection->socket) {
      // The caller stays in the queue, and poll() would return for it at once.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        accepts = Clock::now() + kNoDescriptor;
      return;
    }
    const int on = 1;
    (void)::setsockopt(connection->socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // without it it is slower
    keep_alive(connection->socket.get(), link_timeout);
    connections.push_back(std::move(connection));
  }
}

void HostMail::State::end(Connection& c, const std::string& why) {
  if (c.ended) return;
  c.ended = true;
  if (c.peer >= 0 && peers[std::size_t(c.peer)].why.empty()) peers[std::size_t(c.peer)].why = why;
  // A forked copy of this process may have it, too, and the other side would not learn of the end.
  if (c.socket) ::shutdown(c.socket.get(), SHUT_RDWR);
  c.socket.close();
}

void HostMail::State::write(Connection& c) {
  if (c.connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(c.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return end(c, std::strerror(error));
    c.connecting = false;
    const int on = 1;
    (void)::setsockopt(c.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // without it it is slower
  }
  while (!c.out.empty()) {
    Connection::Piece& piece = c.out.front();
    const bool own = c.out_done < piece.own.size();
    const std::byte* from = own ? piece.own.data() + c.out_done : piece.data + (c.out_done - piece.own.size());
    const std::uint64_t bytes = own ? piece.own.size() - c.out_done : piece.size() - c.out_done;
    if (bytes != 0) {
      const ssize_t sent = ::send(c.socket.get(), from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        return end(c, std::strerror(errno));
      }
      c.out_done += std::uint64_t(sent);
      moved = Clock::now();
    }
    if (c.out_done != piece.size()) continue;
    SHOAL_KILL_POINT("hosts.mail.sent");
    if (const std::uint64_t number = piece.offer; number != 0) {
      offers.erase(number);
      news.emplace_back([number](Mailbox& mailbox) { mailbox.sent(number); });
    }
    c.out.pop_front();
    c.out_done = 0;
  }
  if (closing && !c.shut) {
    c.shut = true;
    ::shutdown(c.socket.get(), SHUT_WR);
  }
}

/// Returns how many bytes have come; 0 if none are there for now, or the connection has ended.
std::uint64_t HostMail::State::read_some(Connection& c, std::byte* to, std::uint64_t most) {
  for (;;) {
    const ssize_t got = ::recv(c.socket.get(), to, most, MSG_DONTWAIT);
    if (got > 0) return std::uint64_t(got);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) end(c, "its connection has ended");
    if (got < 0 && errno != EAGAIN) end(c, std::strerror(errno));
    return 0;
  }
}

void HostMail::State::read(Connection& c) {
  std::uint64_t turn = 0;
  static thread_local std::byte nowhere[64 << 10];
  while (!c.ended && turn < kTurnBytes) {
    std::uint64_t got = 0;
    if (c.got < sizeof(Frame)) {
      got = read_some(c, reinterpret_cast<std::byte*>(&c.frame) + c.got, sizeof(Frame) - c.got);
      c.got += got;
      if (c.got == sizeof(Frame)) begin_frame(c);
    } else {
      const std::uint64_t at = c.got - sizeof(Frame), left = c.frame.bytes - at;
      if (c.frame.kind == Frame::kData) {
        // Asked for each time: whoever waited for the data may have given up.
        const auto place = pulls.find({c.peer, c.frame.number});
        got = place != pulls.end() ? read_some(c, place->second.data + at, left)
                                   : read_some(c, nowhere, std::min<std::uint64_t>(left, sizeof nowhere));
      } else {
        got = read_some(c, c.body.data() + at, left);
      }
      c.got += got;
    }
    if (got == 0) return;
    turn += got;
    if (!c.ended && c.got >= sizeof(Frame) && c.got == sizeof(Frame) + c.frame.bytes) end_frame(c);
  }
}

void HostMail::State::begin_frame(Connection& c) {
  if (c.peer < 0) {
    const bool known = c.frame.kind == Frame::kHello && c.frame.number == key && c.frame.bytes == 0 &&
                       c.frame.rank >= 0 && c.frame.rank < int(peers.size()) && c.frame.rank != me;
    if (!known) return end(c, "");  // of another run, or no rank at all
    c.peer = c.frame.rank;
    return;
  }
  if (c.frame.kind == Frame::kData) {
    const auto place = pulls.find({c.peer, c.frame.number});
    if (place != pulls.end() && place->second.bytes != c.frame.bytes) return end(c, "it has sent something else");
    return;
  }
  c.body.assign(c.frame.bytes, std::byte());
}

void HostMail::State::end_frame(Connection& c) {
  const int peer = c.peer;
  const std::uint64_t number = c.frame.number;
  switch (c.frame.kind) {
    case Frame::kMessage:
    case Frame::kOffer:
      SHOAL_KILL_POINT("hosts.mail.came");
      news.emplace_back([peer, body = std::make_shared<std::vector<std::byte>>(std::move(c.body))](Mailbox& mailbox) {
        mailbox.deliver(peer, unpacked(std::move(*body)));
      });
      break;
    case Frame::kPull:
      if (const auto found = offers.find(number); found != offers.end() && found->second.to == peer) {
        found->second.pulled = true;
        c.post({.kind = Frame::kData, .number = number}, {}, found->second.data, found->second.bytes, number);
      } else {
        c.post({.kind = Frame::kGone, .number = number});
      }
      break;
    case Frame::kData:
      if (pulls.erase({peer, number}) != 0)
        news.emplace_back([peer, number](Mailbox& mailbox) { mailbox.pulled(peer, number); });
      break;
    case Frame::kGone:
      if (pulls.erase({peer, number}) != 0)
        news.emplace_back([peer, number](Mailbox& mailbox) { mailbox.withdrawn(peer, number); });
      break;
    case Frame::kBye:
      c.bye = peers[std::size_t(peer)].has_left = true;
      break;
    default:
      break;
  }
  c.body = {};
  c.got = 0;
}

/// Forgets connections that have ended. A rank is gone when it has none any more: each may have brought something until its
/// end.
void HostMail::State::bury() {
  std::vector<int> suspects;
  for (const auto& connection : connections)
    if (connection->ended && connection->peer >= 0) suspects.push_back(connection->peer);
  for (const int rank : suspects)
    if (Connection*& messages = peers[std::size_t(rank)].messages; messages && messages->ended) messages = nullptr;
  std::erase_if(connections, [](const auto& connection) { return connection->ended; });
  if (suspects.empty() || closing) return;
  accept_all();  // it may have connected before its end, and said which rank it is
  for (const auto& connection : connections)
    if (connection->peer < 0) read(*connection);
  for (const int rank : suspects) {
    Peer& peer = peers[std::size_t(rank)];
    if (peer.gone != Gone::no || connection_to(rank)) continue;
    // Behind what has come from it: who waits asks whether the rank is gone, and takes that for the last word.
    news.emplace_back([this, rank](Mailbox& mailbox) {
      {
        std::lock_guard lock(mutex);
        Peer& its = peers[std::size_t(rank)];
        its.gone = its.has_left ? Gone::left : Gone::died;
        std::erase_if(offers, [&](const auto& offer) { return offer.second.to == rank; });
        std::erase_if(pulls, [&](const auto& pull) { return pull.first.first == rank; });
      }
      mailbox.look();
    });
  }
}

void HostMail::run() {
  State& s = *state_;
  std::vector<pollfd> polled;
  std::vector<Connection*> by_place;
  std::vector<std::function<void(Mailbox&)>> news;
  for (;;) {
    bool closing = false;
    int longest = -1;
    {
      std::lock_guard lock(s.mutex);
      closing = s.closing;
      s.bury();
      std::swap(news, s.news);
      const bool accepts = !closing && Clock::now() >= s.accepts;
      if (!accepts) longest = int((closing ? kClosing : kNoDescriptor).count());
      polled.assign({{s.wakes.get(), POLLIN, 0}, {s.listener.get(), short(accepts ? POLLIN : 0), 0}});
      by_place.assign(2, nullptr);
      for (const auto& connection : s.connections) {
        const bool writes = connection->connecting || !connection->out.empty() || (closing && !connection->shut);
        polled.push_back({connection->socket.get(), short(POLLIN | (writes ? POLLOUT : 0)), 0});
        by_place.push_back(connection.get());
      }
      if (closing && news.empty() && (s.at_once || s.connections.empty() || Clock::now() > s.moved + kStuck)) return;
    }
    for (const auto& tell : news) try {
        tell(s.mailbox);
      } catch (const std::exception& error) {
        log_warning("a message from another host is lost: {}", error.what());
      }
    const bool told = !news.empty();
    news.clear();
    ::poll(polled.data(), polled.size(), told ? 0 : longest);
    std::lock_guard lock(s.mutex);
    std::uint64_t drained = 0;
    [[maybe_unused]] auto woken = ::read(s.wakes.get(), &drained, sizeof drained);
    if (!s.closing) s.accept_all();
    // Those that poll() saw are still there: only this thread removes any.
    for (std::size_t i = 2; i < polled.size(); ++i) {
      Connection& c = *by_place[i];
      if (!c.ended && (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !c.connecting) try {
          s.read(c);
        } catch (const std::exception& error) {  // a frame of more than there is memory
          s.end(c, error.what());
        }
      if (!c.ended && ((polled[i].revents & (POLLOUT | POLLHUP | POLLERR)) != 0 || (s.closing && !c.connecting)))
        s.write(c);
      // A rank that leaves needs no more, and waits for this side to close. What it has sent on another connection may still
      // be coming there.
      if (!c.ended && c.bye && c.out.empty() && !s.closing) s.end(c, "");
    }
  }
}

void HostMail::close(bool at_once) noexcept {
  if (!owner_.is_this() || !state_) return;
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    s.at_once |= at_once;
    if (!s.closing) {
      s.closing = true;
      s.moved = Clock::now();
      for (const auto& connection : s.connections)
        if (connection->peer >= 0 && !connection->ended) connection->post({.kind = Frame::kBye});
    }
  }
  wake();
  std::lock_guard turn(s.closing_mutex);
  if (s.thread.joinable()) s.thread.join();
  std::lock_guard lock(s.mutex);
  s.connections.clear();
  s.listener.close();
}

}  // namespace shoal
