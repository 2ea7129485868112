#include <shoal/internal/workers/train/hosts/note_lines.h>

#include <c10/util/Exception.h>
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/spin.h>
#include <shoal/internal/workers/train/gloo/gloo_group.h>
#include <shoal/internal/workers/train/hosts/numeric_address.h>
#include <shoal/internal/workers/train/hosts/time_left.h>
#include <shoal/ipc/error.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <random>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace shoal {
namespace {

using std::chrono::milliseconds;

/// How long a connection that has ended is waited for to be explained.
constexpr milliseconds kUnexplained{5000};
/// What is read at once at least.
constexpr std::size_t kReadBytes = 32 << 10;

/// The first words on a connection. The token is what only ranks of this column know.
struct Hello {
  std::uint64_t token = 0;
  std::uint64_t index = 0;
};

std::string line_key(int index) { return fmt::format("line/{}", index); }
std::string connected_key(int index) { return fmt::format("line/{}/connected", index); }

void send_at_once(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // without it it is slower
}

[[noreturn]] void fail_to_connect(int peer, const std::string& address, int error) {
  throw GlooFailure(peer, error == ETIMEDOUT ? GlooFailure::late : GlooFailure::ended,
                    fmt::format("connecting with {}: {}", address, std::strerror(error)));
}

/// Waits for one descriptor. False: the time is over.
bool wait_one(int descriptor, short events, Deadline deadline) {
  pollfd polled{descriptor, events, 0};
  for (;;) {
    const int ready = ::poll(&polled, 1, int(left_of(deadline).count()));
    if (ready > 0) return true;
    if (deadline.passed()) return false;
  }
}

OwnSocket connect_to(int peer, const NumericAddress& address, const std::string& text, Hello hello, Deadline deadline) {
  OwnSocket socket([&] { return address.socket(); });
  if (!socket) fail_to_connect(peer, text, errno);
  if (::connect(socket.get(), address.info().ai_addr, address.info().ai_addrlen) != 0 && errno != EINPROGRESS)
    fail_to_connect(peer, text, errno);
  if (!wait_one(socket.get(), POLLOUT, deadline)) fail_to_connect(peer, text, ETIMEDOUT);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) fail_to_connect(peer, text, error);
  // A new connection's buffer is empty, so these few bytes go at once.
  if (::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(sizeof hello))
    fail_to_connect(peer, text, errno);
  return socket;
}

/// One that gives up listens no more, and tells all why a moment later: the store's wait throws that.
void wait_for_reason(c10d::Store& store) {
  try {
    store.wait({"line/never"}, kUnexplained);
  } catch (const c10::DistStoreError&) {  // nobody has told anything
  }
}

}  // namespace

struct NoteLines::Line {
  OwnSocket socket;
  std::vector<std::byte> out;
  std::size_t sent = 0;  // of out
  std::vector<std::byte> in;
  std::size_t got = 0;    // of in
  std::size_t taken = 0;  // of these, what take() has handed out
  bool ended = false;
  int error = 0;  // why; 0: the other side has closed it
  std::optional<Deadline> explained;

  bool wants_to_send() const { return !ended && sent < out.size(); }
  /// How many bytes the message at the front has, as it says.
  std::uint64_t claimed() const {
    std::uint64_t bytes = 0;
    if (got - taken >= sizeof bytes) std::memcpy(&bytes, in.data() + taken, sizeof bytes);
    return bytes;
  }
  /// The message at the front, if all of it is there.
  std::optional<std::span<const std::byte>> message() const {
    const std::size_t there = got - taken, head = sizeof(std::uint64_t);
    if (there < head || there - head < claimed()) return std::nullopt;
    return std::span<const std::byte>(in.data() + taken + head, std::size_t(claimed()));
  }
  void end(int why) {
    ended = true;
    error = why;
  }
};

NoteLines::NoteLines(c10d::Store& store, int index, const std::vector<std::string>& addresses, Deadline deadline,
                     milliseconds link_timeout)
    : wakes_(lift(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)))), lines_(addresses.size()), lost_(addresses.size()) {
  if (!wakes_) throw SystemError("eventfd", errno);
  meet(store, index, addresses, deadline, link_timeout);
}

NoteLines::~NoteLines() = default;

/// Each says where it listens, connects with those before it, says so, and takes those behind it, whose connections are
/// in the queue by then.
void NoteLines::meet(c10d::Store& store, int index, const std::vector<std::string>& addresses, Deadline deadline,
                     milliseconds link_timeout) {
  const int size = int(addresses.size());
  const NumericAddress own(addresses[std::size_t(index)], 0);
  const OwnSocket listener([&] { return own.socket(); });
  if (!listener || ::bind(listener.get(), own.info().ai_addr, own.info().ai_addrlen) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0)
    throw SystemError(fmt::format("a port at {} for the ranks of other hosts", addresses[std::size_t(index)]), errno);
  std::random_device random;
  const std::uint64_t token = std::uint64_t(random()) << 32 | random();
  store.set(line_key(index), fmt::format("{} {}", own_side(listener.get()).port, token));
  for (int peer = 0; peer < index; ++peer) {
    store.wait({line_key(peer)}, left_of(deadline));
    const std::string text = store.get_to_str(line_key(peer));
    int port = 0;
    Hello hello{0, std::uint64_t(index)};
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, port);
    if (error != std::errc() || end == last || std::from_chars(end + 1, last, hello.token).ec != std::errc())
      throw Error(fmt::format("the store has '{}' where a port and a number have to be", text));
    const std::string& address = addresses[std::size_t(peer)];
    SHOAL_KILL_POINT("hosts.lines.connect");
    try {
      lines_[std::size_t(peer)].socket =
          connect_to(peer, {address, port}, fmt::format("{}:{}", address, port), hello, deadline);
    } catch (const GlooFailure&) {
      wait_for_reason(store);
      throw;
    }
  }
  store.set(connected_key(index), "1");
  SHOAL_KILL_POINT("hosts.lines");
  for (int peer = index + 1; peer < size; ++peer) store.wait({connected_key(peer)}, left_of(deadline));
  accept_from(listener, token, index + 1, deadline);
  for (const Line& line : lines_) {
    if (!line.socket) continue;
    send_at_once(line.socket.get());
    // A rank reads when it comes to the collective, and may be late. A lost link ends Gloo's connection beside this one.
    ask_whether_alive(line.socket.get(), link_timeout);
  }
}

void NoteLines::accept_from(const OwnSocket& listener, std::uint64_t token, int first, Deadline deadline) {
  struct Caller {
    OwnSocket socket;
    Hello hello;
    std::size_t got = 0;
    bool done = false;
  };
  std::vector<Caller> callers;
  const auto missing = [&] {
    for (int peer = first; peer < int(lines_.size()); ++peer)
      if (!lines_[std::size_t(peer)].socket) return peer;
    return -1;
  };
  while (missing() >= 0) {
    std::vector<pollfd> polled{{listener.get(), POLLIN, 0}};
    for (const Caller& caller : callers) polled.push_back({caller.socket.get(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), int(std::min(left_of(deadline), milliseconds(1000)).count()));
    for (;;) {
      Caller caller;
      caller.socket = OwnSocket(
          [&] { return lift(Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))); });
      if (!caller.socket) {
        // No descriptor, or no memory: the caller stays in the queue, and asking again and again would only burn time.
        if (const int error = errno; error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
          throw SystemError("accepting a connection for notes", error);
        break;
      }
      callers.push_back(std::move(caller));
    }
    for (Caller& caller : callers) {
      const ssize_t got = ::recv(caller.socket.get(), reinterpret_cast<char*>(&caller.hello) + caller.got,
                                 sizeof(Hello) - caller.got, MSG_DONTWAIT);
      if (got > 0) caller.got += std::size_t(got);
      caller.done = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) || caller.got == sizeof(Hello);
      if (caller.got != sizeof(Hello)) continue;
      const auto peer = caller.hello.index;
      const bool known = caller.hello.token == token && peer >= std::uint64_t(first) && peer < lines_.size();
      if (known && !lines_[peer].socket) lines_[peer].socket = std::move(caller.socket);
    }
    std::erase_if(callers, [](const Caller& caller) { return caller.done; });
    if (missing() >= 0 && deadline.passed())
      throw GlooFailure(missing(), GlooFailure::late, "its connection for notes has not come");
  }
}

void NoteLines::post(int peer, std::span<const std::span<const std::byte>> pieces) {
  Line& line = lines_[std::size_t(peer)];
  std::uint64_t bytes = 0;
  for (const auto piece : pieces) bytes += piece.size();
  if (line.sent == line.out.size()) {
    line.out.clear();
    line.sent = 0;
  }
  const auto append = [&](const void* data, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    line.out.insert(line.out.end(), begin, begin + size);
  };
  append(&bytes, sizeof bytes);
  for (const auto piece : pieces) append(piece.data(), piece.size());
  write(line);
}

void NoteLines::write(Line& line) {
  while (line.wants_to_send()) {
    const ssize_t sent = ::send(line.socket.get(), line.out.data() + line.sent, line.out.size() - line.sent,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      line.sent += std::size_t(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return;
    // Nobody gets it. What the other side has sent can still be read, and behind it is the end.
    line.sent = line.out.size();
  }
}

void NoteLines::read(Line& line) {
  while (!line.ended) {
    if (line.in.size() - line.got < kReadBytes) line.in.resize(line.got + 2 * kReadBytes);
    const ssize_t got = ::recv(line.socket.get(), line.in.data() + line.got, line.in.size() - line.got, MSG_DONTWAIT);
    if (got > 0) {
      line.got += std::size_t(got);
      if (line.message()) return;
      if (line.claimed() > kMost) line.end(EPROTO);  // none of ours
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      line.end(got == 0 ? 0 : errno);
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

std::span<const std::byte> NoteLines::take(int peer, Deadline deadline) {
  Line& line = lines_[std::size_t(peer)];
  // What was handed out last is over. Mostly nothing has come behind it.
  line.got -= line.taken;
  if (line.got != 0) std::memmove(line.in.data(), line.in.data() + line.taken, line.got);
  line.taken = 0;
  const auto came = [&] {
    if (!line.message()) read(line);
    return line.message().has_value();
  };
  const auto hand_out = [&] {
    const auto message = *line.message();
    line.taken = sizeof(std::uint64_t) + message.size();
    return message;
  };
  if (came()) return hand_out();
  Spinner spinner(Spinner::Turns::yields);
  while (!line.ended && !aborted_ && spinner.turn()) {
    if (!came()) continue;
    spinner.ended(true);
    return hand_out();
  }
  MailNaps mail;
  while (!came()) {
    check(peer, line, deadline);
    sleep(&line, deadline, mail);
  }
  spinner.ended(false);
  return hand_out();
}

/// Throws if the message never comes.
void NoteLines::check(int peer, Line& line, Deadline deadline) const {
  if (aborted_) throw GlooFailure(peer, GlooFailure::ended, "its connection was ended");
  if (line.ended) {
    if (lost_[std::size_t(peer)]) throw GlooFailure(peer, GlooFailure::ended, "its connection has ended");
    if (!line.explained) line.explained = Deadline::after(kUnexplained);
    if (line.explained->passed())
      throw GlooFailure(peer,
                        line.error == ETIMEDOUT || line.error == EHOSTUNREACH || line.error == ENETUNREACH
                            ? GlooFailure::unreachable
                            : GlooFailure::ended,
                        line.error == 0 ? "its connection has ended" : std::strerror(line.error));
  }
  if (deadline.passed()) throw GlooFailure(peer, GlooFailure::late, "nothing has come in time");
}

void NoteLines::flush(Deadline deadline) {
  MailNaps mail;
  for (std::size_t peer = 0; peer < lines_.size(); ++peer)
    while (lines_[peer].wants_to_send()) {
      check(int(peer), lines_[peer], deadline);
      sleep(nullptr, deadline, mail);
    }
}

/// Until there is something to read from this one, or another thread wants something; sends meanwhile what it can.
void NoteLines::sleep(Line* reading, Deadline deadline, MailNaps& mail) {
  std::vector<pollfd> polled{{wakes_.get(), POLLIN, 0}};
  std::vector<Line*> polled_lines;
  for (Line& line : lines_) {
    const bool reads = &line == reading && !line.ended;
    if (!reads && !line.wants_to_send()) continue;
    polled.push_back({line.socket.get(), short((reads ? POLLIN : 0) | (line.wants_to_send() ? POLLOUT : 0)), 0});
    polled_lines.push_back(&line);
  }
  auto left = left_of(deadline);
  if (reading && reading->explained) left = std::min(left, left_of(*reading->explained));
  const std::chrono::nanoseconds nap = mail.next(std::min<milliseconds>(left, kLivenessSlice));
  const timespec longest{nap.count() / 1'000'000'000, nap.count() % 1'000'000'000};
  ::ppoll(polled.data(), polled.size(), &longest, nullptr);
  std::uint64_t drained = 0;
  [[maybe_unused]] auto woken = ::read(wakes_.get(), &drained, sizeof drained);
  for (std::size_t i = 0; i < polled_lines.size(); ++i)
    if ((polled[i + 1].revents & (POLLOUT | POLLERR | POLLHUP)) != 0) write(*polled_lines[i]);
}

void NoteLines::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(wakes_.get(), &one, sizeof one);
}

void NoteLines::abort() noexcept {
  aborted_ = true;
  for (const Line& line : lines_)
    if (line.socket) ::shutdown(line.socket.get(), SHUT_RDWR);
  wake();
}

void NoteLines::lose(int peer) noexcept {
  lost_[std::size_t(peer)] = true;
  wake();
}

}  // namespace shoal
