#include <errno.h>
#include <fcntl.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/stack_request.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/names/attach_protocol.h>
#include <shoal/internal/ipc/names/rendezvous.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/listener.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::FreshProcess;
using std::chrono::milliseconds;
using std::chrono::seconds;
namespace fresh = shoal::test::fresh;
namespace fs = std::filesystem;

namespace {

/// A runtime folder of the test's own, for itself and the processes that it starts.
class RuntimeFolder {
 public:
  RuntimeFolder() {
    char name[] = "/tmp/shoal-runtime-XXXXXX";
    path_ = ::mkdtemp(name);
    ::setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~RuntimeFolder() {
    ::unsetenv("XDG_RUNTIME_DIR");
    fs::remove_all(path_);
  }
  std::string sessions() const { return path_ + "/shoal"; }
  /// What lies in it.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(sessions())) names.push_back(entry.path().filename());
    return names;
  }

 private:
  std::string path_;
};

Fd connect_to(const std::string& name) {
  RendezvousFolder folder = RendezvousFolder::open(RendezvousFolder::candidates().front());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un at = folder.address(name);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    throw SystemError("connecting", errno);
  return socket;
}

pid_t thread_named(const std::string& name) {
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    if (found == name) return std::stoi(task.path().filename());
  }
  throw Error("no thread " + name);
}

/// Whether another process has the liveness byte.
bool is_locked(std::uint32_t slot) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_start = slot;
  lock.l_len = 1;
  return ::fcntl(SessionCore::current().descriptors().liveness, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/// Of the session's memory that this process has mapped.
std::string heap_mappings() {
  int count = 0;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) count += line.find("shoal-heap") != std::string::npos;
  return std::to_string(count);
}

/// Waits for its end, whatever it says until then.
int end_of(FreshProcess& process) {
  while (!process.read_line().empty()) {
  }
  return process.join();
}

}  // namespace

TEST_CASE("body: attach and echo until minus one", "[.]") {
  fresh::run([] {
    Session::attach("test");
    SessionCore& session = SessionCore::current();
    auto there = session.lookup<Queue<int>>("there"), back = session.lookup<Queue<int>>("back");
    fresh::say("attached");
    for (int value; (value = there.get()) != -1;) back.put(value + 1);
  });
}

TEST_CASE("body: attach and say what comes of it", "[.]") {
  fresh::run([] {
    Session::attach("test", milliseconds(300));
    fresh::say("attached");
    fresh::hear();
  });
}

TEST_CASE("body: attach in eight threads at once", "[.]") {
  fresh::run([] {
    constexpr int kThreads = 8;
    std::atomic<int> ready{0}, attached{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        ++ready;
        while (ready < kThreads) std::this_thread::yield();
        try {
          Session::attach("test");
          ++attached;
        } catch (const std::logic_error&) {
        }
      });
    threads.clear();
    fresh::say(std::to_string(attached));
    fresh::hear();
  });
}

TEST_CASE("body: attach and say what is left of a failure", "[.]") {
  fresh::run([] {
    std::string message;
    try {
      Session::attach("test");
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    fresh::say(message);
    fresh::say(heap_mappings());
  });
}

TEST_CASE("body: attach and be killed at a point", "[.]") {
  fresh::run([] {
    const std::string label = fresh::hear();
    kill_at(label.c_str());
    Session::attach("test");
  });
}

TEST_CASE("body: attach and take memory", "[.]") {
  fresh::run([] {
    Session::attach("test");
    std::vector<Hold> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(allocate_shared(100'000));
    fresh::say("holding");
    fresh::hear();
  });
}

TEST_CASE("body: listen and publish a queue", "[.]") {
  fresh::run([] {
    const std::string label = fresh::hear();
    Queue<int> queue(8);
    queue.put(1);
    Session::current().publish("queue", queue);
    Listener listener = Session::listen("test");
    if (!label.empty()) kill_at(label.c_str());
    fresh::say("listening");
    fresh::hear();
  });
}

TEST_CASE("body: attach and outlive the root", "[.]") {
  fresh::run([] {
    Session::attach("test");
    SessionCore& session = SessionCore::current();
    auto queue = session.lookup<Queue<int>>("queue");
    fresh::say("attached");
    fresh::hear();  // the root is gone
    session.reclaim_all();
    if (queue.get() != 1) throw Error("another value");
    for (int i = 0; i < 100; ++i) {
      queue.put(i);
      if (queue.get() != i) throw Error("another value");
    }
    Hold block = allocate_shared(20u << 20);
    block.data()[block.size() - 1] = std::byte(1);
    bool gone = false;
    try {
      session.lookup<Queue<int>>("queue");
    } catch (const NotPublished&) {
      gone = true;
    }
    if (!gone) throw Error("what the root published is still there");
    fresh::say("went on");
  });
}

TEST_CASE("body: attach twice", "[.]") {
  fresh::run([] {
    Session::attach("test");
    Session::attach("test");
  });
}

TEST_CASE("attach: a process from outside finds the queues, takes a slot and gives it back") {
  RuntimeFolder folder;
  SessionCore& session = SessionCore::current();
  const auto slots = session.free_slots();
  {
    Listener listener = Session::listen("test");
    CHECK(listener.path() == folder.sessions() + "/test.sock");
    Queue<int> there(4), back(4);
    session.publish("there", there);
    session.publish("back", back);
    FreshProcess first("body: attach and echo until minus one");
    FreshProcess second("body: attach and echo until minus one");
    REQUIRE(first.read_line() == "attached");
    REQUIRE(second.read_line() == "attached");
    CHECK(session.free_slots() == slots - 2);
    ProcessTag tag = session.find(first.pid());
    REQUIRE(tag);
    CHECK(std::string(session.record(tag.slot()).name) == "attached");
    int sum = 0;
    for (int i = 0; i < 100; ++i) {
      there.put(i);
      sum += back.get(seconds(20));
    }
    CHECK(sum == 99 * 100 / 2 + 100);
    there.put(-1);
    there.put(-1);
    CHECK(first.join() == 0);
    CHECK(second.join() == 0);
    session.unpublish("there");
    session.unpublish("back");
  }
  session.reclaim_all();
  CHECK(session.free_slots() == slots);
  CHECK(folder.files().empty());
}

TEST_CASE("attach: a bad name is refused by value") {
  RuntimeFolder folder;
  for (const std::string& bad : {std::string(), std::string("a/b"), std::string("../x"), std::string("."),
                                 std::string(".hidden"), std::string("a b"), std::string(65, 'n')}) {
    CHECK_THROWS_AS(Session::listen(bad), std::invalid_argument);
    CHECK_THROWS_WITH(Session::listen(bad), ContainsSubstring("'" + bad + "'"));
    CHECK_THROWS_AS(Session::attach(bad), std::invalid_argument);
  }
  Listener longest = Session::listen(std::string(64, 'n'));
  CHECK(fs::exists(longest.path()));
}

TEST_CASE("attach: where nobody listens the error says what to do") {
  RuntimeFolder folder;
  FreshProcess process("body: attach and say what comes of it");
  CHECK_THAT(process.read_line(), ContainsSubstring("no session listens under the name 'test'") &&
                                      ContainsSubstring(folder.sessions()) && ContainsSubstring("Session::listen"));
  CHECK(process.join() == 1);
}

TEST_CASE("attach: a process is part of one session only") {
  RuntimeFolder folder;
  CHECK_THROWS_WITH(Session::attach("test"), ContainsSubstring("already"));
  Listener listener = Session::listen("test");
  FreshProcess process("body: attach twice");
  CHECK_THAT(process.read_line(), ContainsSubstring("part of a session already"));
  process.join();
  Session::current().reclaim_all();
}

TEST_CASE("attach: of threads that attach at once one does, and its process keeps its lock") {
  RuntimeFolder folder;
  SessionCore& session = SessionCore::current();
  Listener listener = Session::listen("test");
  for (int round = 0; round < 5; ++round) {
    FreshProcess process("body: attach in eight threads at once");
    CHECK(process.read_line() == "1");
    const ProcessTag tag = session.find(process.pid());
    REQUIRE(tag);
    CHECK(is_locked(tag.slot()));
    process.write_line("end");
    CHECK(process.join() == 0);
  }
  session.reclaim_all();
}

TEST_CASE("attach: a process that fails to has not mapped the heap") {
  RuntimeFolder folder;
  Listener listener = Session::listen("test");
  FreshProcess process("body: attach and say what is left of a failure", {{"SHOAL_KEEP_IDLE", "lots"}});
  CHECK_THAT(process.read_line(), ContainsSubstring("SHOAL_KEEP_IDLE"));
  CHECK(process.read_line() == "0");
  CHECK(process.join() == 0);
}

TEST_CASE("attach: a listener that is asked for its stack while it waits for a request goes on waiting") {
  RuntimeFolder folder;
  Listener listener = Session::listen("test");
  const Fd socket = connect_to("test");
  const pid_t thread = thread_named("shoal-listen");
  for (int i = 0; i < 100; ++i) {
    ::syscall(SYS_tgkill, ::getpid(), thread, kStackSignal);
    std::this_thread::sleep_for(milliseconds(1));
  }
  AttachRequest request;
  request.heap_version =
      SessionLayout::kVersion + 1;  // no descriptors come: one's own liveness file is not to be closed
  CHECK(ask_to_attach(socket.get(), request).reply.outcome == AttachReply::kOtherVersion);
}

TEST_CASE("attach: a name is one listener's, and free when it is gone") {
  RuntimeFolder folder;
  {
    Listener listener = Session::listen("test");
    CHECK_THROWS_WITH(Session::listen("test"), ContainsSubstring("already"));
    Listener other = Session::listen("other");
    FreshProcess rival("body: listen and publish a queue");
    rival.write_line("");
    CHECK_THAT(rival.read_line(), ContainsSubstring("process " + std::to_string(::getpid()) + " listens"));
    // The rival's failure has not taken the name away.
    FreshProcess process("body: attach and say what comes of it");
    CHECK(process.read_line() == "attached");
    process.write_line("end");
    process.join();
    Listener moved = std::move(listener);
    CHECK(moved.name() == "test");
  }
  CHECK(folder.files().empty());
  Listener again = Session::listen("test");
  Session::current().reclaim_all();
}

TEST_CASE("attach: the name of a listener that was killed is taken over") {
  RuntimeFolder folder;
  FreshProcess dead("body: listen and publish a queue");
  dead.write_line("");
  REQUIRE(dead.read_line() == "listening");
  dead.kill();
  CHECK(folder.files().size() == 2);  // nobody removed them
  {
    FreshProcess process("body: attach and say what comes of it");
    CHECK_THAT(process.read_line(), ContainsSubstring("no session listens"));
    CHECK(process.join() == 1);
  }
  Listener listener = Session::listen("test");
  FreshProcess process("body: attach and say what comes of it");
  CHECK(process.read_line() == "attached");
  process.write_line("end");
  CHECK(process.join() == 0);
  Session::current().reclaim_all();
}

TEST_CASE("attach: a listener's forked child does not keep the name") {
  RuntimeFolder folder;
  auto listener = std::make_unique<Listener>(Session::listen("test"));
  Forked child([&] {
    listener.reset();  // the copy does nothing
    ::pause();
  });
  CHECK(fs::exists(folder.sessions() + "/test.sock"));
  FreshProcess process("body: attach and say what comes of it");
  CHECK(process.read_line() == "attached");
  process.write_line("end");
  process.join();
  listener.reset();
  CHECK_THROWS_AS(connect_to("test"), SystemError);
  Listener again = Session::listen("test");
  Session::current().reclaim_all();
}

TEST_CASE("attach: another version is refused, with both named") {
  RuntimeFolder folder;
  SECTION("by the session") {
    Listener listener = Session::listen("test");
    AttachRequest request;
    request.heap_version = SessionLayout::kVersion + 1;
    AttachAnswer answer = ask_to_attach(connect_to("test").get(), request);
    CHECK(answer.reply.outcome == AttachReply::kOtherVersion);
    CHECK(answer.reply.heap_version == SessionLayout::kVersion);
    CHECK_FALSE(answer.memory);
  }
  SECTION("by the process") {
    // A session of a later shoal.
    RendezvousFolder at = RendezvousFolder::open_or_make();
    Fd socket = at.listen("test");
    FreshProcess process("body: attach and say what comes of it");
    Fd connection(::accept(socket.get(), nullptr, nullptr));
    AttachReply reply;
    reply.outcome = AttachReply::kOtherVersion;
    reply.heap_version = 1234;
    (void)!::write(connection.get(), &reply, sizeof reply);
    CHECK_THAT(process.read_line(), ContainsSubstring("version 1234") &&
                                        ContainsSubstring("version " + std::to_string(SessionLayout::kVersion)));
    CHECK(process.join() == 1);
  }
}

TEST_CASE("attach: what is no session of shoal is told so") {
  RuntimeFolder folder;
  RendezvousFolder at = RendezvousFolder::open_or_make();
  Fd socket = at.listen("test");
  FreshProcess process("body: attach and say what comes of it");
  Fd connection(::accept(socket.get(), nullptr, nullptr));
  (void)!::write(connection.get(), "hello", 5);
  CHECK_THAT(process.read_line(), ContainsSubstring("no session of shoal"));
  // The other way round: a stranger that says something else is not let in.
  Listener listener = Session::listen("other");
  Fd stranger = connect_to("other");
  AttachRequest nonsense;
  nonsense.magic = 1;
  CHECK(ask_to_attach(stranger.get(), nonsense).reply.outcome == AttachReply::kNoRequest);
}

TEST_CASE("attach: another user is refused, at the folder and by the session") {
  if (::geteuid() != 0) return;  // only root can become another user
  RuntimeFolder folder;
  Listener listener = Session::listen("test");
  constexpr uid_t kNobody = 65534;
  ::chmod(fs::path(folder.sessions()).parent_path().c_str(), 0755);
  SECTION("the folder is root's") {
    ::chmod(folder.sessions().c_str(), 0755);
    Forked child([&] {
      if (::setuid(kNobody) != 0) throw Error("setuid");
      try {
        RendezvousFolder::open(folder.sessions());
      } catch (const Error& error) {
        if (std::string(error.what()).find("belongs to user 0") != std::string::npos) return;
      }
      throw Error("not refused");
    });
    CHECK(child.join() == 0);
  }
  SECTION("one that gets to the socket all the same") {
    Forked child([&] {
      ::chmod(folder.sessions().c_str(), 0755);
      ::chmod(listener.path().c_str(), 0777);
      if (::setuid(kNobody) != 0) throw Error("setuid");
      Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      sockaddr_un at{};
      at.sun_family = AF_UNIX;
      listener.path().copy(at.sun_path, sizeof at.sun_path - 1);
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
        throw SystemError("connect", errno);
      AttachRequest request;
      request.heap_version = SessionLayout::kVersion;
      AttachAnswer answer = ask_to_attach(socket.get(), request);
      if (answer.reply.outcome != AttachReply::kOtherUser || answer.memory) throw Error("let in");
      if (answer.reply.user != 0) throw Error("whose session it is was not said");
    });
    CHECK(child.join() == 0);
  }
}

TEST_CASE("attach: a folder that others may enter is not used") {
  RuntimeFolder folder;
  fs::create_directory(folder.sessions());
  ::chmod(folder.sessions().c_str(), 0755);
  CHECK_THROWS_WITH(Session::listen("test"), ContainsSubstring("mode 755"));
  fs::remove(folder.sessions());
  fs::create_directory_symlink("/tmp", folder.sessions());
  CHECK_THROWS_AS(Session::listen("test"), SystemError);
}

TEST_CASE("attach: killed at any point of it, a process leaves nothing, and the next one gets in") {
  RuntimeFolder folder;
  SessionCore& session = SessionCore::current();
  const auto slots = session.free_slots();
  Listener listener = Session::listen("test");
  const std::string label = GENERATE("attach.connected", "attach.received", "attach.joined");
  FreshProcess victim("body: attach and be killed at a point");
  victim.write_line(label);
  CAPTURE(label);
  CHECK(victim.join() == -SIGKILL);
  FreshProcess next("body: attach and say what comes of it");
  CHECK(next.read_line() == "attached");
  next.write_line("end");
  CHECK(next.join() == 0);
  session.reclaim_all();
  CHECK(session.free_slots() == slots);
}

TEST_CASE("attach: a listener that is killed while it answers is an error, or was in time") {
  RuntimeFolder folder;
  const std::string label = GENERATE("listen.accepted", "listen.before_reply", "listen.replied");
  FreshProcess root("body: listen and publish a queue");
  root.write_line(label);
  REQUIRE(root.read_line() == "listening");
  FreshProcess process("body: attach and say what comes of it");
  const std::string said = process.read_line();
  CAPTURE(label, said);
  CHECK(root.join() == -SIGKILL);
  if (label == "listen.replied")
    CHECK(said == "attached");
  else
    CHECK_THAT(said, ContainsSubstring("ended before it answered"));
  process.write_line("end");
  CHECK(end_of(process) == (said == "attached" ? 0 : 1));
}

TEST_CASE("attach: a stopped listener is waited for until the time is up") {
  RuntimeFolder folder;
  FreshProcess root("body: listen and publish a queue");
  root.write_line("");
  REQUIRE(root.read_line() == "listening");
  ::kill(root.pid(), SIGSTOP);
  FreshProcess process("body: attach and say what comes of it");
  CHECK_THAT(process.read_line(), ContainsSubstring("does not answer"));
  CHECK(process.join() == 1);
}

TEST_CASE("attach: one that connects and says nothing does not keep others out") {
  RuntimeFolder folder;
  Listener listener = Session::listen("test");
  Fd silent = connect_to("test");
  FreshProcess process("body: attach and take memory");
  CHECK(process.read_line() == "holding");
  process.write_line("end");
  process.join();
  Session::current().reclaim_all();
}

TEST_CASE("attach: what an attached process held when it was killed is given back") {
  RuntimeFolder folder;
  SessionCore& session = SessionCore::current();
  const std::size_t before = heap_bytes_in_use();
  Listener listener = Session::listen("test");
  FreshProcess process("body: attach and take memory");
  REQUIRE(process.read_line() == "holding");
  CHECK(heap_bytes_in_use() >= before + 100 * 100'000);
  process.kill();
  CHECK(session.find(process.pid()));
  session.reclaim_all();
  CHECK(heap_bytes_in_use() == before);
  CHECK_FALSE(session.find(process.pid()));
}

TEST_CASE("attach: when the root leaves or is killed, the attached keep the heap") {
  RuntimeFolder folder;
  const bool killed = GENERATE(false, true);
  FreshProcess root("body: listen and publish a queue");
  root.write_line("");
  REQUIRE(root.read_line() == "listening");
  FreshProcess attached("body: attach and outlive the root");
  REQUIRE(attached.read_line() == "attached");
  if (killed) {
    root.kill();
  } else {
    root.write_line("end");
    CHECK(root.join() == 0);
  }
  attached.write_line("go on");
  CHECK(attached.read_line() == "went on");
  CHECK(attached.join() == 0);
}

TEST_CASE("attach: listening starts one thread, which a fork may lose") {
  RuntimeFolder folder;
  auto others = [] {
    int count = 0;
    for (const auto& task : fs::directory_iterator("/proc/self/task")) {
      const pid_t thread = std::stoi(task.path().filename());
      count += thread != ::getpid() && is_service_thread(thread);
    }
    return count;
  };
  CHECK(others() == 0);
  {
    Listener listener = Session::listen("test");
    CHECK(others() == 1);
    CHECK_FALSE(is_service_thread(::gettid()));
  }
  CHECK(others() == 0);
}
