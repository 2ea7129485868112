// Notes between the hosts of a column: what arrives, who else may call, and how a wait ends.
#include <shoal/internal/workers/train/hosts/note_lines.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <shoal/internal/workers/train/gloo/gloo_group.h>
#include <shoal/ipc/fd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;
using namespace std::chrono_literals;

namespace note_lines_test {

namespace {

using Bytes = std::string;

/// Ranks of this process, connected by the loopback.
struct Lines {
  explicit Lines(int size, std::chrono::seconds timeout = 30s, std::chrono::milliseconds link_timeout = 30s)
      : all(std::size_t(size)) {
    const std::vector<std::string> addresses(std::size_t(size), "127.0.0.1");
    std::vector<std::future<std::unique_ptr<NoteLines>>> made;
    for (int index = 0; index < size; ++index)
      made.push_back(std::async(std::launch::async, [this, index, addresses, timeout, link_timeout] {
        return std::make_unique<NoteLines>(*store, index, addresses, Deadline::after(timeout), link_timeout);
      }));
    for (std::size_t index = 0; index < made.size(); ++index) all[index] = made[index].get();
  }
  NoteLines& operator[](std::size_t index) { return *all[index]; }

  c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<NoteLines>> all;
};

/// Bytes that say whose they are, which message's, and where in it.
Bytes content(int from, int to, int number, std::size_t size) {
  std::mt19937 random(std::uint32_t(from * 7919 + to * 104729 + number));
  Bytes bytes(size, '\0');
  for (char& byte : bytes) byte = char(random());
  return bytes;
}

void post(NoteLines& lines, int peer, const Bytes& bytes) {
  // In two pieces: what a message is made of is nobody's business but the sender's.
  const std::span<const std::byte> whole = std::as_bytes(std::span(bytes));
  const std::span<const std::byte> pieces[] = {whole.first(bytes.size() / 3), whole.subspan(bytes.size() / 3)};
  lines.post(peer, pieces);
}

Bytes take(NoteLines& lines, int peer) {
  const auto message = lines.take(peer, Deadline::after(1min));
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

std::optional<GlooFailure::Why> why_it_failed(NoteLines& lines, int peer, Deadline deadline = Deadline::after(10min)) {
  try {
    (void)lines.take(peer, deadline);
  } catch (const GlooFailure& failure) {
    CHECK(failure.peer() == peer);
    return failure.why();
  }
  return std::nullopt;
}

/// A connection to where a member listens, which the store says.
Fd connect_to(const std::string& side) {
  int port = 0;
  std::from_chars(side.data(), side.data() + side.size(), port);
  Fd socket = lift(Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(std::uint16_t(port));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

}  // namespace

TEST_CASE("note lines: where there is no descriptor for a connection, that is said at once") {
  auto store = c10::make_intrusive<c10d::HashStore>();
  auto made = std::async(std::launch::async, [&] {
    return std::make_unique<NoteLines>(*store, 0, std::vector<std::string>(2, "127.0.0.1"), Deadline::after(1h), 30s);
  });
  store->wait({"line/0"});
  const Fd caller = connect_to(store->get_to_str("line/0"));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  std::vector<Fd> all;
  const rlimit few{std::min<rlim_t>(before.rlim_cur, 256), before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  while (Fd one{::open("/dev/null", O_RDONLY | O_CLOEXEC)}) all.push_back(std::move(one));
  store->set("line/1/connected", std::vector<std::uint8_t>{1});
  CHECK_THROWS_WITH(made.get(), ContainsSubstring("accepting a connection for notes") && ContainsSubstring("EMFILE"));
  all.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("note lines: each gets what was posted to it, in order, of any size, also if all send at once") {
  Lines lines(3);
  const std::size_t sizes[] = {0, 1, 7, 64, 4096, 100'000, 1 << 20, 3 << 20, 5, NoteLines::kMost};
  std::vector<std::future<bool>> ranks;
  for (int me = 0; me < 3; ++me)
    ranks.push_back(std::async(std::launch::async, [&, me] {
      bool right = true;
      int number = 0;
      for (const std::size_t size : sizes) {
        ++number;
        // All post before any takes: no buffer of the kernel's holds the large ones.
        for (int to = 0; to < 3; ++to)
          if (to != me) post(lines[std::size_t(me)], to, content(me, to, number, size));
        for (int from = 2; from >= 0; --from)
          if (from != me) right &= take(lines[std::size_t(me)], from) == content(from, me, number, size);
        lines[std::size_t(me)].flush(Deadline::after(1min));
      }
      return right;
    }));
  for (auto& rank : ranks) CHECK(rank.get());
}

TEST_CASE("note lines: one side may be several messages ahead") {
  Lines lines(2);
  for (int number = 0; number < 20; ++number) post(lines[0], 1, content(0, 1, number, std::size_t(number) * 1000));
  for (int number = 0; number < 20; ++number)
    CHECK(take(lines[1], 0) == content(0, 1, number, std::size_t(number) * 1000));
}

TEST_CASE("note lines: one that is late for longer than a link may be silent gets what was posted") {
  Lines lines(2, 30s, 300ms);
  const Bytes large =
      content(0, 1, 0, NoteLines::kMost - 8);  // more than the kernel takes for a reader that is not there
  post(lines[0], 1, large);
  std::this_thread::sleep_for(1500ms);  // the lateness; what it is for goes on for as long as it lasts
  const auto sent = std::async(std::launch::async, [&] { lines[0].flush(Deadline::after(1min)); });
  CHECK(take(lines[1], 0) == large);
}

TEST_CASE("note lines: whoever does not know the token gets no place, and delays nobody") {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const std::vector<std::string> addresses(2, "127.0.0.1");
  const auto connect = [&](int index) {
    return std::make_unique<NoteLines>(*store, index, addresses, Deadline::after(30s), 30s);
  };
  auto first = std::async(std::launch::async, connect, 0);
  const std::string side = store->get_to_str("line/0");
  std::vector<Fd> strangers;
  for (const std::uint64_t index : {1, 1, 0, 77}) {
    strangers.push_back(connect_to(side));
    const std::uint64_t hello[] = {12345, index};
    const std::size_t bytes = strangers.size() == 2 ? 5 : sizeof hello;  // one stops in the middle
    REQUIRE(::send(strangers.back().get(), hello, bytes, 0) == ssize_t(bytes));
  }
  strangers.push_back(connect_to(side));  // and one says nothing
  const auto b = connect(1);
  const auto a = first.get();
  post(*b, 0, content(1, 0, 1, 100));
  CHECK(take(*a, 1) == content(1, 0, 1, 100));
}

TEST_CASE("note lines: one that does not connect is named when the time is over") {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const auto set = [&](const char* key, const std::string& text) { store->set(key, {text.begin(), text.end()}); };
  set("line/1", "1 1");
  set("line/1/connected", "1");  // it died right after
  try {
    const NoteLines lines(*store, 0, {"127.0.0.1", "127.0.0.1"}, Deadline::after(200ms), 30s);
    FAIL("it has connected");
  } catch (const GlooFailure& failure) {
    CHECK(failure.peer() == 1);
    CHECK(failure.why() == GlooFailure::late);
  }
}

TEST_CASE("note lines: a wait ends by the time-out, by abort() and when its sender is lost") {
  Lines lines(3);
  CHECK(why_it_failed(lines[0], 1, Deadline::after(10ms)) == GlooFailure::late);
  const auto waits = [&](std::size_t me, int peer) {
    return std::async(std::launch::async, [&, me, peer] { return why_it_failed(lines[me], peer); });
  };
  SECTION("abort") {
    auto waiting = waits(0, 1);
    std::this_thread::sleep_for(GENERATE(0ms, 20ms));
    lines[0].abort();
    CHECK(waiting.get() == GlooFailure::ended);
    CHECK(why_it_failed(lines[0], 2) == GlooFailure::ended);
  }
  SECTION("lost, before its end or after it") {
    const bool lost_first = GENERATE(true, false);
    auto waiting = waits(0, 1);
    if (lost_first) lines[0].lose(1);
    std::this_thread::sleep_for(20ms);
    lines.all[1].reset();
    if (!lost_first) {
      std::this_thread::sleep_for(20ms);
      lines[0].lose(1);
    }
    CHECK(waiting.get() == GlooFailure::ended);
    // The others go on.
    post(lines[2], 0, content(2, 0, 1, 10));
    CHECK(take(lines[0], 2) == content(2, 0, 1, 10));
  }
}

TEST_CASE("note lines: what was sent is there after its sender has gone") {
  Lines lines(2);
  post(lines[1], 0, content(1, 0, 1, 50'000));
  post(lines[1], 0, content(1, 0, 2, 10));
  lines.all[1].reset();
  lines[0].lose(1);
  CHECK(take(lines[0], 1) == content(1, 0, 1, 50'000));
  CHECK(take(lines[0], 1) == content(1, 0, 2, 10));
  CHECK(why_it_failed(lines[0], 1) == GlooFailure::ended);
}

TEST_CASE("note lines: what is on its way when its sender is lost comes") {
  Lines lines(2);
  lines[0].lose(1);  // Gloo's connection may end before this one has brought all
  auto got = std::async(std::launch::async, [&] { return take(lines[0], 1); });
  std::this_thread::sleep_for(20ms);
  post(lines[1], 0, content(1, 0, 1, 100));
  CHECK(got.get() == content(1, 0, 1, 100));
}

TEST_CASE("note lines: posting to one that has gone neither waits nor fails") {
  Lines lines(3);
  lines.all[1].reset();
  for (int number = 0; number < 5; ++number) post(lines[0], 1, content(0, 1, number, 1 << 20));
  post(lines[2], 0, content(2, 0, 1, 10));
  CHECK(take(lines[0], 2) == content(2, 0, 1, 10));
  lines[0].flush(Deadline::after(1min));
}

TEST_CASE("note lines: one that reads nothing makes the sender's time-out pass, and no less") {
  Lines lines(2);
  for (int number = 0; number < 20; ++number) post(lines[0], 1, content(0, 1, number, NoteLines::kMost));
  CHECK_THROWS_AS(lines[0].flush(Deadline::after(50ms)), GlooFailure);
  auto rest = std::async(std::launch::async, [&] { lines[0].flush(Deadline::after(1min)); });
  for (int number = 0; number < 20; ++number) CHECK(take(lines[1], 0) == content(0, 1, number, NoteLines::kMost));
  rest.get();
}

TEST_CASE("note lines: an end that nobody explains is one after a while") {
  Lines lines(2);
  lines.all[1].reset();
  CHECK(why_it_failed(lines[0], 1) == GlooFailure::ended);
}

}  // namespace note_lines_test
