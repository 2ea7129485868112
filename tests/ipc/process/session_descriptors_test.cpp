// The session's descriptors in programs that close what they have not opened, and in programs that start without
// standard input, output and error.
#include <fcntl.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/death_watch.h>
#include <shoal/internal/ipc/process/liveness.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/ipc/descriptor.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/listener.h>
#include <shoal/ipc/log.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::FreshProcess;
namespace fresh = shoal::test::fresh;
namespace fs = std::filesystem;

namespace {

void require(bool good, const char* what) {
  if (!good) throw Error(what);
}

/// A file of the user's, with something in it.
Fd users_file() {
  Fd file(::memfd_create("users", MFD_CLOEXEC));
  require(::write(file.get(), "precious", 8) == 8, "write");
  return file;
}

bool is_precious(int file) {
  char text[8];
  return ::pread(file, text, sizeof text, 0) == 8 && ::memcmp(text, "precious", 8) == 0;
}

/// What a careless program does: `number` is another file's from now on.
void take_over(int number, const Fd& file) { require(::dup3(file.get(), number, O_CLOEXEC) == number, "dup3"); }

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("own file: it is told from whatever has its number later, and that is not closed") {
  const Fd other = users_file();
  int number;
  {
    OwnFile file(Fd(::memfd_create("own", MFD_CLOEXEC)), "the thing");
    number = file.descriptor();
    CHECK(file.is_open());
    CHECK(file.descriptor_if_open() == number);
    CHECK(file.resident_bytes() == 0u);
    REQUIRE(::write(number, "x", 1) == 1);
    CHECK(file.resident_bytes() == 4096u);
    take_over(number, other);
    CHECK_FALSE(file.is_open());
    CHECK_FALSE(file.resident_bytes());
    CHECK(file.descriptor_if_open() == -1);
    CHECK_THROWS_WITH(file.descriptor(), ContainsSubstring("descriptor " + std::to_string(number) + " was the thing") &&
                                             ContainsSubstring("memfd:users") &&
                                             ContainsSubstring("before the first use"));
  }
  CHECK(is_precious(number));
  ::close(number);
}

TEST_CASE("own file: one that was closed is said to be") {
  OwnFile file(Fd(::memfd_create("own", MFD_CLOEXEC)), "the thing");
  ::close(file.descriptor());
  CHECK_FALSE(file.is_open());
  CHECK_THROWS_WITH(file.descriptor(), ContainsSubstring("and is closed now"));
}

TEST_CASE("body: the session's memory loses its number", "[.]") {
  fresh::run([] {
    SessionCore& session = SessionCore::current();
    session.self();
    const int number = session.descriptors().memory;
    const Fd file = users_file();
    take_over(number, file);
    fresh::say(std::to_string(number));
    fresh::say(message_of([&] { session.descriptors(); }));
    fresh::say(message_of([] { ReadOnlyView::base(); }));
    require(session.descriptors_if_open().memory == -1, "the user's file is handed out");
    require(!session.memory_file().resident_bytes(), "the user's file is counted");
    // Memory goes on as before.
    for (int i = 0; i < 3; ++i) {
      Hold hold = allocate_shared(5 << 20);
      ::memset(hold.data(), 1, hold.size());
    }
    require(is_precious(number), "the user's file was written to");
  });
}

TEST_CASE("session: where its memory's number is another file's, that file is not taken for it") {
  FreshProcess process("body: the session's memory loses its number");
  const std::string number = process.read_line();
  for (int i = 0; i < 2; ++i)
    CHECK_THAT(process.read_line(), ContainsSubstring("descriptor " + number + " was the session's memory") &&
                                        ContainsSubstring("'/memfd:users"));
  CHECK(process.read_line() == "");
  CHECK(process.join() == 0);
}

TEST_CASE("session: a process that has lost the liveness file lives, and sees who lives and who died") {
  SessionCore& session = SessionCore::current();
  int to_child[2], to_parent[2];
  REQUIRE(::pipe2(to_child, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(to_parent, O_CLOEXEC) == 0);
  char byte = 0;
  {
    Forked other([] { ::pause(); });
    Forked child([&] {
      const Fd file = users_file();
      const int number = session.descriptors().liveness;
      take_over(number, file);
      require(session.is_alive(session.find(other.pid())), "one that lives is dead");
      require(session.is_alive(session.find(::getppid())), "the parent is dead");
      (void)!::write(to_parent[1], "l", 1);
      (void)!::read(to_child[0], &byte, 1);
      require(!session.is_alive(session.find(other.pid())), "the dead one lives for ever");
      require(is_precious(number), "the user's file was written to");
      require(message_of([&] { session.descriptors(); }).find("was the session's liveness file") != std::string::npos,
              "a process would be started into the user's file");
    });
    REQUIRE(::read(to_parent[0], &byte, 1) == 1);
    // Its lock went with the descriptor.
    const ProcessTag tag = session.find(child.pid());
    CHECK(session.is_alive(tag));
    session.reclaim_all();
    CHECK(session.is_alive(tag));
    other.kill();
    REQUIRE(::write(to_child[1], "g", 1) == 1);
    CHECK(child.join() == 0);
    CHECK_FALSE(session.is_alive(tag));
  }
  for (const int end : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(end);
  session.reclaim_all();
}

namespace {

bool has_thread(const std::string& name) {
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    if (found == name) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("body: close what shoal's threads sleep on", "[.]") {
  fresh::run([] {
    Queue<Descriptor> sent(2);
    sent.put(Descriptor::duplicate_of(0));  // it stays there, so the thread that hands it out looks at it now and then
    std::optional<DeathWatch> watch(std::in_place);
    std::optional<Listener> listener(Session::listen("closed"));
    for (const char* name : {"shoal-offers", "shoal-deaths", "shoal-listen"}) require(has_thread(name), name);
    // All but those by which it speaks to the test.
    ::close_range(3, 99, 0);
    ::close_range(102, ~0u, 0);
    std::vector<Fd> files;
    for (int i = 0; i < 20; ++i) files.push_back(users_file());
    watch.reset();
    listener.reset();
    while (has_thread("shoal-offers")) std::this_thread::yield();
    fresh::say(message_of([&] { sent.put(Descriptor::duplicate_of(0)); }));
    for (const Fd& file : files) {
      struct stat status{};
      require(::fstat(file.get(), &status) == 0 && status.st_size == 8 && is_precious(file.get()),
              "a file of the user's was closed or written to");
    }
    fresh::say("went on");
  });
}

TEST_CASE("session: where a program closes what shoal's threads sleep on, they end, and its own files are left alone") {
  const test::TemporaryFolder folder;
  FreshProcess process("body: close what shoal's threads sleep on", {{"XDG_RUNTIME_DIR", folder.path()}});
  CHECK_THAT(process.read_line(), ContainsSubstring("was the socket for descriptors in messages"));
  CHECK(process.read_line() == "went on");
  CHECK(process.join() == 0);
}

TEST_CASE("fd: a number below 3 is lifted, others stay") {
  Forked child([] {
    for (int i = 0; i < 3; ++i) ::close(i);
    Fd file = lift(users_file());
    require(file.get() >= 3, "not lifted");
    require(is_precious(file.get()), "another file");
    require((::fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0, "not closed at exec");
    require(::fcntl(0, F_GETFD) < 0, "the first number stays open");
    const int number = file.get();
    require(lift(std::move(file)).get() == number, "lifted though high");
    const PipeEnds pipe = make_pipe();
    require(pipe.reading.get() >= 3 && pipe.writing.get() >= 3, "a pipe that is not lifted");
    require(!lift(Fd()), "lifted nothing");
  });
  CHECK(child.join() == 0);
}

TEST_CASE("body: no standard descriptors", "[.]") {
  fresh::run([] {
    for (int i = 0; i < 3; ++i) ::close(i);
    SessionCore& session = SessionCore::current();
    Queue<int> queue(4);
    auto [one, other] = Pipe<int>();
    queue.put(1);
    one.fileno();
    const Listener listener = Session::listen("closed-" + std::to_string(::getpid()));
    Queue<Descriptor> descriptors(1);
    descriptors.put(Descriptor::duplicate_of(session.descriptors().memory));
    const Descriptor own = descriptors.get();
    ReadOnlyView::base();
    for (int i = 0; i < 1000; ++i) {
      std::puts("a line that is longer than the words at the start of the heap");
      std::fputs("and another one", stderr);
      log_error("said to nobody");
    }
    std::fflush(nullptr);
    for (int i = 0; i < 3; ++i) require(::fcntl(i, F_GETFD) < 0, "a descriptor of shoal's is a standard one");
    require(session.layout().magic == SessionLayout::kMagic, "the heap was written over");
    require(queue.get() == 1, "the queue is damaged");
    Forked child([&] {
      queue.put(2);
      std::puts("from a child");
      std::fflush(nullptr);
      for (int i = 0; i < 3; ++i) require(::fcntl(i, F_GETFD) < 0, "a child's descriptor is a standard one");
    });
    require(child.join() == 0, "the child has failed");
    require(queue.get() == 2 && session.layout().magic == SessionLayout::kMagic, "damaged by the child");
  });
}

TEST_CASE("session: without standard input, output and error, what is printed goes nowhere near the heap") {
  FreshProcess process("body: no standard descriptors");
  CHECK(process.read_line() == "");
  CHECK(process.join() == 0);
}
