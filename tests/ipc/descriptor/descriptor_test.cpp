// Descriptors in messages. Each test is in processes of its own: the thread that hands out descriptors stays as
// long as its process.
#include <shoal/ipc/descriptor.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/base/stack_request.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;

namespace {

void require(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

/// Where the process hands out descriptors.
std::pair<sockaddr_un, socklen_t> offers_of(ProcessTag process) {
  const OwnFile& memory = SessionCore::current().memory_file();
  const std::string name = fmt::format("shoal-{:x}-{:x}-{:08x}", memory.device(), memory.inode(), process.word());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return {address, socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

pid_t thread_named(pid_t process, const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process))) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    if (found == name) return std::stoi(task.path().filename());
  }
  throw Error("no thread " + name);
}

/// What a sender answers, of a descriptor that is none of its.
void hand_out(int connection, int descriptor) {
  std::int32_t error = 0;
  iovec bytes{&error, sizeof error};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  (void)!::sendmsg(connection, &message, MSG_NOSIGNAL);
}

std::size_t open_descriptors() {
  return std::size_t(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

}  // namespace

TEST_CASE("descriptor: what one process opened, another one writes to") {
  Pipe<Descriptor> pipe;
  Queue<int> done(1);
  Forked sender([&] {
    pipe.second.close();
    auto [in, out] = make_pipe();
    pipe.first.send(Descriptor(std::move(out)));
    char text[6]{};
    require(::read(in.get(), text, 5) == 5, "nothing came through the descriptor");
    require(std::string(text) == "hello", "something else came through the descriptor");
    require(::read(in.get(), text, 5) == 0, "a duplicate of the descriptor is open still");
    done.put(1);
  });
  Forked receiver([&] {
    pipe.first.close();
    Descriptor got = pipe.second.recv();
    require(::fcntl(got.get(), F_GETFD) == FD_CLOEXEC, "the descriptor is not CLOEXEC");
    require(::write(got.get(), "hello", 5) == 5, "the descriptor cannot be written to");
  });
  CHECK(receiver.join() == 0);
  CHECK(done.get() == 1);
  CHECK(sender.join() == 0);
}

TEST_CASE("descriptor: many in one message and among other values, to the sender itself too") {
  Forked child([] {
    struct Files {
      std::string name;
      std::vector<Descriptor> open;
    };
    Queue<Files> queue(1);
    auto [in, out] = make_pipe();
    const Descriptor reading(std::move(in)), writing(std::move(out));
    queue.put({"both", {reading, writing, Descriptor::duplicate_of(writing.get())}});
    Files got = queue.get();
    require(got.name == "both" && got.open.size() == 3, "the message is another one");
    require(::write(got.open[2].get(), "x", 1) == 1, "not writable");
    char byte;
    require(::read(got.open[0].get(), &byte, 1) == 1 && byte == 'x', "not readable");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("descriptor: an empty or a closed one is refused before anything is sent") {
  Forked child([] {
    Queue<Descriptor> queue(1);
    try {
      queue.put(Descriptor());
      throw Error("sent");
    } catch (const std::invalid_argument&) {
    }
    try {
      Descriptor::duplicate_of(4000);
      throw Error("duplicated");
    } catch (const SystemError& error) {
      require(error.error_number() == EBADF, "another errno");
    }
    require(queue.empty(), "not empty");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("descriptor: if its sender is dead it is PeerDied, with the sender's pid") {
  Queue<Descriptor> queue(1);
  pid_t sender_pid = 0;
  {
    Forked sender([&] {
      queue.put(Descriptor::duplicate_of(0));
      ::kill(::getpid(), SIGKILL);
    });
    sender_pid = sender.pid();
    sender.join();
  }
  CHECK_THROWS_WITH(queue.get(), ContainsSubstring("pid " + std::to_string(sender_pid)));
}

TEST_CASE("descriptor: if its sender is dead it is PeerDied, also while a child lives that it had forked") {
  Queue<Descriptor> queue(1);
  auto [child_ended, child_lives] = make_pipe();  // the child's copy of the second closes with the child
  auto [go_on, let_go] = make_pipe();
  {
    Forked sender([&] {
      queue.put(Descriptor::duplicate_of(0));  // from here on it listens
      let_go.reset();
      if (::fork() == 0) {
        char byte;
        (void)!::read(go_on.get(), &byte, 1);
        ::_exit(0);
      }
      ::kill(::getpid(), SIGKILL);
    });
    sender.join();
    CHECK_THROWS_AS(queue.get(), PeerDied);
  }
  child_lives.reset();
  let_go.reset();
  char byte;
  CHECK(::read(child_ended.get(), &byte, 1) == 0);
}

TEST_CASE("descriptor: if its sender is dead it is PeerDied, also if another user listens in its place") {
  if (::geteuid() != 0) return;  // only root can become another user
  Queue<Descriptor> queue(1);
  Forked sender([&] {
    queue.put(Descriptor::duplicate_of(0));
    ::kill(::getpid(), SIGKILL);
  });
  sender.join();
  auto [address, length] = offers_of(SessionCore::current().find(sender.pid()));
  auto [listened, listens] = make_pipe();
  Forked squatter([&] {
    require(::setuid(65534) == 0, "setuid");
    const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    require(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
    require(::listen(socket.get(), 4) == 0, "listen");
    require(::write(listens.get(), "l", 1) == 1, "write");
    const Fd connection(::accept(socket.get(), nullptr, nullptr));
    char secret[16];
    require(::recv(connection.get(), secret, sizeof secret, 0) <= 0, "it was told the secret");
    hand_out(connection.get(), 0);
  });
  char byte;
  REQUIRE(::read(listened.get(), &byte, 1) == 1);
  CHECK_THROWS_AS(queue.get(), PeerDied);
  CHECK(squatter.join() == 0);
}

TEST_CASE("descriptor: a sender that is asked for its stack while a receiver asks it goes on listening") {
  Queue<Descriptor> queue(1);
  Queue<int> go_on(1);
  Forked sender([&] {
    queue.put(Descriptor::duplicate_of(0));
    go_on.get();
  });
  while (queue.empty()) std::this_thread::yield();
  const pid_t thread = thread_named(sender.pid(), "shoal-offers");
  auto [address, length] = offers_of(SessionCore::current().find(sender.pid()));
  const Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(connection.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  for (int i = 0; i < 100; ++i) {
    ::syscall(SYS_tgkill, sender.pid(), thread, kStackSignal);
    std::this_thread::sleep_for(1ms);
  }
  const char secret[16]{};
  ::send(connection.get(), secret, sizeof secret, MSG_NOSIGNAL);
  std::int32_t answer = 0;
  CHECK(::recv(connection.get(), &answer, sizeof answer, 0) == sizeof answer);
  CHECK(answer == ENOENT);
  go_on.put(1);
  CHECK(sender.join() == 0);
}

TEST_CASE("descriptor: a sender that waits for its receiver is stopped and goes on: the descriptor arrives") {
  Queue<Descriptor> queue(1);
  Queue<int> received(1);
  Forked sender([&] {
    queue.put(Descriptor::duplicate_of(0));
    ::kill(::getpid(), SIGSTOP);
    received.get();
  });
  Forked receiver([&] {
    require(bool(queue.get()), "nothing");
    received.put(1);
  });
  int status;
  REQUIRE(::waitpid(sender.pid(), &status, WUNTRACED) == sender.pid());
  sender.signal(SIGCONT);
  CHECK(receiver.join() == 0);
  CHECK(sender.join() == 0);
}

TEST_CASE("descriptor: those that are never received are closed when their message is gone") {
  Forked child([] {
    {
      Queue<Descriptor> warm_up(1);
      warm_up.put(Descriptor::duplicate_of(0));
      warm_up.get();
    }
    std::size_t before = 0;
    {
      Queue<Descriptor> queue(20);
      before = open_descriptors();
      for (int i = 0; i < 20; ++i) queue.put(Descriptor::duplicate_of(0));
      require(open_descriptors() >= before + 19, "no duplicates");  // the warm-up's may be gone meanwhile
    }
    while (open_descriptors() > before) std::this_thread::yield();  // the watchdog ends it if this never comes
  });
  CHECK(child.join() == 0);
}

TEST_CASE("descriptor: a receiver killed while it asks harms nobody") {
  Queue<Descriptor> queue(4);
  Queue<int> go_on(1);
  Forked sender([&] {
    for (int i = 0; i < 2; ++i) queue.put(Descriptor::duplicate_of(0));
    go_on.get();
  });
  {
    Forked victim([&] {
      kill_at("descriptor.fetch.asked");
      queue.get();
    });
    CHECK(victim.join() == -SIGKILL);
  }
  Forked receiver([&] { require(bool(queue.get()), "nothing"); });
  CHECK(receiver.join() == 0);
  go_on.put(1);
  CHECK(sender.join() == 0);
}

// UBSan looks at a vptr by way of a pipe: without descriptors it takes every object for a wrong one.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("descriptor: with no descriptor left, the receiver says so") {
  Queue<Descriptor> queue(1);
  Queue<int> received(1);
  Forked sender([&] {
    queue.put(Descriptor::duplicate_of(0));
    received.get();
  });
  Forked receiver([&] {
    rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    int last = -1;
    for (int fresh; (fresh = ::dup(0)) >= 0;) last = fresh;
    ::close(last);  // for the socket
    try {
      queue.get();
      throw Error("received");
    } catch (const SystemError& error) {
      require(error.error_number() == EMFILE, "another errno");
    }
  });
  CHECK(receiver.join() == 0);
  received.put(1);
  CHECK(sender.join() == 0);
}

TEST_CASE("descriptor: a sender that has no descriptor left hands out those that it has sent") {
  Queue<Descriptor> queue(3);
  Queue<int> full(1), received(1);
  Forked sender([&] {
    for (int i = 0; i < 3; ++i) queue.put(Descriptor::duplicate_of(0));
    rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    while (::dup(0) >= 0) continue;
    full.put(1);
    received.get();
  });
  Forked receiver([&] {
    full.get();
    for (int i = 0; i < 3; ++i) require(bool(queue.get()), "nothing");
  });
  CHECK(receiver.join() == 0);
  received.put(1);
  CHECK(sender.join() == 0);
}
#endif

// TSan does not know threads that a forked child starts.
#ifndef __SANITIZE_THREAD__
TEST_CASE("descriptor: a process that is forked while a thread of its parent sends one sends its own") {
  Forked child([] {
    Queue<Descriptor> queue(2);
    queue.put(Descriptor::duplicate_of(0));
    delay_at("descriptor.offer.entered", {.mean = 1'000'000, .one_in = 1});
    std::thread sending([&] { queue.put(Descriptor::duplicate_of(0)); });
    while (kill_points::delays_made() == 0) std::this_thread::yield();
    Forked grandchild([] {
      ::alarm(20);
      Queue<Descriptor> own(1);
      own.put(Descriptor::duplicate_of(0));
      require(bool(own.get()), "nothing");
    });
    sending.join();
    require(grandchild.join() == 0, "the fork failed");
    for (int i = 0; i < 2; ++i) require(bool(queue.get()), "nothing");
  });
  CHECK(child.join() == 0);
}
#endif

namespace {

std::atomic<int> ticks{0};
pid_t stopped_sender = 0;
std::vector<int> in_the_way;

/// Interrupts the wait a few times, then ends what it waits for.
void tick(int) {
  if (++ticks != 5) return;
  for (int connection : in_the_way) ::close(connection);
  ::kill(stopped_sender, SIGCONT);
}

}  // namespace

TEST_CASE("descriptor: fetched of one that is busy and has no room for more, through signals") {
  Forked child([] {
    Pipe<Descriptor> pipe;
    Queue<int> done(1);
    Forked sender([&] {
      auto [in, out] = make_pipe();
      pipe.first.send(Descriptor(std::move(in)));
      ::raise(SIGSTOP);
      require(::write(out.get(), "x", 1) == 1, "writing to the pipe");
      done.get();
    });
    int status;
    require(::waitpid(sender.pid(), &status, WUNTRACED) == sender.pid() && WIFSTOPPED(status), "it did not stop");
    // Connections that it does not take, as it stands still, until the kernel keeps no more for it.
    auto [address, length] = offers_of(SessionCore::current().find(sender.pid()));
    for (;;) {
      in_the_way.push_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (::connect(in_the_way.back(), reinterpret_cast<sockaddr*>(&address), length) == 0) continue;
      require(errno == EAGAIN, "connecting to the sender");
      break;
    }
    stopped_sender = sender.pid();
    struct sigaction action{};
    action.sa_handler = &tick;  // without SA_RESTART
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval often{{0, 20'000}, {0, 20'000}}, never{};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    Descriptor got = pipe.second.recv();
    ::setitimer(ITIMER_REAL, &never, nullptr);
    require(ticks >= 5, "it did not wait");
    char byte = 0;
    require(::read(got.get(), &byte, 1) == 1 && byte == 'x', "it is another descriptor");
    done.put(1);
    require(sender.join() == 0, "the sender failed");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("descriptor: one that was sent before a fork is closed when it was fetched, also while the child lives") {
  Forked sender([] {
    Queue<Descriptor> queue(1);
    int ends[2];
    require(::pipe2(ends, O_CLOEXEC) == 0, "no pipe");
    const Fd reading(ends[0]);
    queue.put(Descriptor(Fd(ends[1])));
    // With its copy of the handles, it has a hold on all that the parent had one on.
    const Forked child([] { ::pause(); });
    queue.get();
    char byte = 0;
    require(::read(reading.get(), &byte, 1) == 0, "somebody has the writing end");
  });
  CHECK(sender.join() == 0);
}
