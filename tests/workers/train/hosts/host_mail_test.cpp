// What comes to a rank from other hosts that no rank would send, and what it does where it cannot ask a store.
#include <shoal/internal/workers/train/hosts/host_mail.h>

#include <arpa/inet.h>
#include <shoal/internal/workers/train/hosts/store_questions.h>
#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/shm_group.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using namespace shoal::test;
using namespace std::chrono_literals;

namespace host_mail_test {

namespace {

constexpr std::uint64_t kKey = 77;

/// As HostMail writes it to a connection.
struct Frame {
  std::uint32_t kind;
  std::int32_t rank;
  std::uint64_t number, bytes;
};

/// Pages of this process's address space, in bytes.
std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * std::uint64_t(::sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("host mail: a message of more than there can be ends its connection, and nothing else") {
  Communicator own = ShmGroup(1).join(0);
  const HostMap map =
      HostMap::from({{"a", "127.0.0.1", {{0, ::getpid(), "auto"}}}, {"b", "127.0.0.1", {{1, 1, "auto"}}}}, 0, 2);
  const auto mail = std::make_shared<HostMail>(own.mailbox(), map, kKey, 30s);
  own.mailbox().connect(mail, {0, -1}, 0);
  mail->start({0, 0});
  const Fd socket = lift(Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(std::uint16_t(mail->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  const Frame frames[] = {{1, 1, kKey, 0}, {2, -1, 0, std::uint64_t(1) << 62}};
  REQUIRE(::send(socket.get(), frames, sizeof frames, MSG_NOSIGNAL) == ssize_t(sizeof frames));
  char byte = 0;
  CHECK(::recv(socket.get(), &byte, 1, 0) <= 0);
  while (mail->state_of(1) == RemoteMail::Gone::no) std::this_thread::yield();
  CHECK(mail->state_of(1) == RemoteMail::Gone::died);
}

namespace {

/// A rank of two hosts, both of which are this one.
struct Side {
  explicit Side(int me) : own(ShmGroup(1).join(0)), to(1 - me) {
    const HostMap map = HostMap::from(
        {{"a", "127.0.0.1", {{0, ::getpid(), "auto"}}}, {"b", "127.0.0.1", {{1, ::getpid(), "auto"}}}}, me, 2);
    mail = std::make_shared<HostMail>(own.mailbox(), map, kKey, 30s);
    own.mailbox().connect(mail, me == 0 ? std::vector<int>{0, -1} : std::vector<int>{-1, 0}, me);
  }
  Mailbox::Handle send(std::string& text, int tag) {
    return own.mailbox().send({reinterpret_cast<std::byte*>(text.data()), text.size(), nullptr}, to, tag, 0);
  }
  Mailbox::Handle receive(std::string& text, int tag) {
    return own.mailbox().receive(reinterpret_cast<std::byte*>(text.data()), text.size(), to, tag, 0);
  }

  Communicator own;
  int to;
  std::shared_ptr<HostMail> mail;
};

}  // namespace

TEST_CASE("host mail: what was sent before a farewell comes, in order, also between two that began at once") {
  for (int round = 0; round < 20; ++round) {
    Side a(0), b(1);
    const std::vector<std::int32_t> ports{a.mail->port(), b.mail->port()};
    a.mail->start(ports);
    b.mail->start(ports);
    // Both connect before either has heard of the other.
    std::string word_of_a(1, 'a'), word_of_b(1, 'b'), at_a(1, ' '), at_b(1, ' ');
    const auto to_a = a.receive(at_a, 9), to_b = b.receive(at_b, 9);
    a.send(word_of_a, 9);
    b.send(word_of_b, 9);
    b.own.mailbox().wait(to_b, 30s);
    std::vector<std::string> sent;
    for (int number = 0; number < 40; ++number)
      sent.emplace_back(number % 3 == 0 ? 400'000 : 8, char('a' + number % 26));
    for (std::string& text : sent) a.send(text, 1);
    a.own.mailbox().wait(to_a, 30s);
    a.own.mailbox().leave();
    for (const std::string& text : sent) {
      std::string got(text.size(), ' ');
      b.own.mailbox().wait(b.receive(got, 1), 30s);
      REQUIRE(got == text);
    }
    CHECK(at_a == "b");
    CHECK(at_b == "a");
  }
}

namespace {

/// A rank of another host, by hand.
Fd loopback_socket() {
  Fd made = lift(Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
  const timeval longest{20, 0};
  ::setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  return made;
}
sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(std::uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
/// The next frame of this kind, whose bytes are passed over; those of other kinds are, too.
bool comes(const Fd& socket, std::uint32_t kind) {
  for (Frame frame{};;) {
    if (::recv(socket.get(), &frame, sizeof frame, MSG_WAITALL) != ssize_t(sizeof frame)) return false;
    std::string body(frame.bytes, ' ');
    if (frame.bytes != 0 && ::recv(socket.get(), body.data(), body.size(), MSG_WAITALL) != ssize_t(body.size()))
      return false;
    if (frame.kind == kind) return true;
  }
}

}  // namespace

TEST_CASE("host mail: all messages to a rank go on one connection, also where it has opened another one") {
  constexpr std::uint32_t kHello = 1, kMessage = 2, kPull = 4, kGone = 6;
  Side a(0);
  const Fd listener = loopback_socket();
  sockaddr_in own = loopback(0);
  socklen_t size = sizeof own;
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
  REQUIRE(::listen(listener.get(), 4) == 0);
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
  a.mail->start({0, ntohs(own.sin_port)});
  // It connects, and says only later who it is.
  const Fd theirs = loopback_socket();
  const sockaddr_in to = loopback(a.mail->port());
  REQUIRE(::connect(theirs.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  std::string first = "first", second = "second";
  a.send(first, 1);
  const Fd ours = lift(Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  const timeval longest{20, 0};
  ::setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  REQUIRE(comes(ours, kMessage));
  const Frame frames[] = {{kHello, 1, kKey, 0}, {kPull, -1, 4711, 0}};
  REQUIRE(::send(theirs.get(), frames, sizeof frames, MSG_NOSIGNAL) == ssize_t(sizeof frames));
  REQUIRE(comes(theirs, kGone));  // it is known now
  a.send(second, 1);
  CHECK(comes(ours, kMessage));
}

TEST_CASE("store questions: where no thread is to be had, a question is refused") {
  Forked child([] {
    MeetingPlace place{.host = "127.0.0.1", .port = 0, .run = "questions", .group = "", .served = false, .rank = 0};
    place.port = open_store(place, Deadline::after(1min));
    StoreConnection store(place, Deadline::after(1min));
    StoreQuestions questions(store);
    const auto ask = [](StoreConnection& asked) { return asked.set_first("key", "there"); };
    if (questions.ask(ask).text != "there") throw std::runtime_error("no answer");
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = address_space() + (64 << 10);  // no room for a thread's stack
    ::setrlimit(RLIMIT_AS, &limit);
    std::latch asked(1);
    std::vector<std::thread> threads;  // as many as there are stacks of ended ones to be used again
    try {
      for (;;) threads.emplace_back([&] { asked.wait(); });
    } catch (const std::system_error&) {
    }
    const auto answer = questions.ask(ask);
    asked.count_down();
    for (std::thread& thread : threads) thread.join();
    limit.rlim_cur = before;
    ::setrlimit(RLIMIT_AS, &limit);
    if (answer.end != StoreQuestions::End::refused) throw std::runtime_error("it was asked");
  });
  CHECK(child.join() == 0);
}

}  // namespace host_mail_test
