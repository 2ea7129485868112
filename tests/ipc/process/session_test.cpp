#include <shoal/ipc/session.h>

#include <fcntl.h>
#include <sched.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/liveness.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <shoal/ipc/heap.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::rounds;

TEST_CASE("session: a forked child takes a slot of its own and never acts as its parent") {
  SessionCore& session = SessionCore::current();
  ProcessTag parent = session.self();
  Forked child([&] {
    if (session.self() == parent) throw Error("the parent's slot");
    if (session.forked_from() != parent) throw Error("not known whose child");
    if (!session.is_alive(parent)) throw Error("the parent seems dead");
  });
  CHECK(child.join() == 0);
  CHECK(session.is_alive(parent));
}

TEST_CASE("session: a killed process is dead at once, also as a zombie; a stopped one is alive") {
  SessionCore& session = SessionCore::current();
  Forked child([] { ::pause(); });
  ProcessTag tag = session.find(child.pid());
  REQUIRE(tag);
  CHECK(session.is_alive(tag));
  child.signal(SIGSTOP);
  int status;
  REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
  CHECK(session.is_alive(tag));
  child.signal(SIGKILL);
  siginfo_t info;
  REQUIRE(::waitid(P_PID, child.pid(), &info, WEXITED | WNOWAIT) == 0);  // dead, not reaped
  CHECK_FALSE(session.is_alive(tag));
}

TEST_CASE("session: a slot is used again under another generation") {
  SessionCore& session = SessionCore::current();
  ProcessTag first, second;
  {
    Forked child([] { ::pause(); });
    first = session.find(child.pid());
  }
  {
    Forked child([] { ::pause(); });
    second = session.find(child.pid());
  }
  CHECK(first.slot() == second.slot());
  CHECK(first != second);
  CHECK_FALSE(session.is_alive(first));
}

TEST_CASE("session: a hundred processes come and go and leave no slot taken") {
  SessionCore& session = SessionCore::current();
  const auto free = session.free_slots();
  for (int i = 0; i < 100; ++i) Forked child([] {});
  CHECK(session.free_slots() == free);
}

TEST_CASE("session: reclaiming a living process, nobody, or twice does nothing") {
  SessionCore& session = SessionCore::current();
  Forked child([] { ::pause(); });
  ProcessTag tag = session.find(child.pid());
  CHECK(session.reclaim(tag));
  CHECK(session.is_alive(tag));
  CHECK(session.reclaim(ProcessTag()));
  child.kill();
  CHECK(session.reclaim(tag));
  CHECK(session.reclaim(tag));
  CHECK_FALSE(session.find(child.pid()));
}

TEST_CASE("session: the child of a dead forked parent does not keep it alive") {
  SessionCore& session = SessionCore::current();
  int grandchild_pid[2];
  REQUIRE(::pipe(grandchild_pid) == 0);
  Forked child([&] {
    pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == 1) ::_exit(0);
      ::pause();
    }
    (void)!::write(grandchild_pid[1], &grandchild, sizeof grandchild);
    ::pause();
  });
  pid_t grandchild;
  REQUIRE(::read(grandchild_pid[0], &grandchild, sizeof grandchild) == sizeof grandchild);
  ProcessTag tag = session.find(child.pid());
  child.kill();
  CHECK_FALSE(session.is_alive(tag));
  ::kill(grandchild, SIGKILL);
  ::close(grandchild_pid[0]);
  ::close(grandchild_pid[1]);
}

TEST_CASE("session: a process of another pid name space is dead when it is") {
  SessionCore& session = SessionCore::current();
  PipeEnds told = make_pipe(), go_on = make_pipe();
  Forked outer([&] {
    if (::unshare(CLONE_NEWPID) != 0) return;  // not allowed here: says nothing
    const pid_t inner = ::fork();
    if (inner == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::uint32_t tag = session.self().word();
      (void)!::write(told.writing.get(), &tag, sizeof tag);
      for (;;) ::pause();
    }
    char byte;
    (void)!::read(go_on.reading.get(), &byte, 1);
    ::kill(inner, SIGKILL);
    ::waitpid(inner, nullptr, 0);
  });
  told.writing.reset();
  std::uint32_t word = 0;
  if (::read(told.reading.get(), &word, sizeof word) != sizeof word) return;
  const ProcessTag tag = ProcessTag::from_word(word);
  CHECK(session.is_alive(tag));
  REQUIRE(::write(go_on.writing.get(), "g", 1) == 1);
  CHECK(outer.join() == 0);
  CHECK_FALSE(session.is_alive(tag));  // its pid was 1, which is somebody's here
  session.reclaim_all();
}

TEST_CASE("session: a process that executes another program is dead, though its pid is there") {
  SessionCore& session = SessionCore::current();
  PipeEnds executed = make_pipe();
  Forked child([&] {
    ::fcntl(executed.writing.get(), F_DUPFD_CLOEXEC, 200);  // closed last, after the session's
    ::execlp("sleep", "sleep", "100", nullptr);
    throw Error("no sleep");
  });
  const ProcessTag tag = session.find(child.pid());
  REQUIRE(tag);
  executed.writing.reset();
  char byte;
  REQUIRE(::read(executed.reading.get(), &byte, 1) == 0);
  CHECK_FALSE(session.is_alive(tag));
  CHECK(session.reclaim(tag));
  CHECK_FALSE(session.find(child.pid()));
}

TEST_CASE("session: a process that is part of one cannot join another") {
  CHECK_THROWS_WITH(SessionCore::join({}), ContainsSubstring("already"));
}

TEST_CASE("session: liveness bytes are exclusive between processes") {
  LivenessFile file(LivenessFile::make_file());
  REQUIRE(file.take(5));
  CHECK_FALSE(file.is_taken(5));  // one's own lock is invisible to oneself
  Forked child([&] {
    if (!file.is_taken(5) || file.take(5)) throw Error("not locked");
    if (!file.take(6)) throw Error("6 is free");
  });
  CHECK(child.join() == 0);
  CHECK_FALSE(file.is_taken(6));
}

TEST_CASE("session: process_exists tells a process, a zombie and a reused pid apart") {
  Forked child([] { ::pause(); });
  const std::uint64_t start = process_start_time(child.pid()), now = process_clock();
  REQUIRE(start != 0);
  CHECK(start <= now);
  CHECK(process_exists(child.pid(), start));
  CHECK(process_exists(child.pid(), now));
  CHECK_FALSE(process_exists(child.pid(), start - 1));  // who had the pid then died before this one started
  child.signal(SIGKILL);
  siginfo_t info;
  REQUIRE(::waitid(P_PID, child.pid(), &info, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(process_exists(child.pid(), now));  // a zombie
  child.join();
  CHECK_FALSE(process_exists(child.pid(), now));  // gone
}

TEST_CASE("session: a killed process is there until its last thread is gone, and its files with it") {
  for (int round = 0; round < rounds(6); ++round) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    Forked child([&] {
      // What the last thread gives back takes its time.
      const int file = ::memfd_create("files of the dead", 0);
      const std::size_t bytes = 256 << 20;
      if (::ftruncate(file, bytes) != 0) throw Error("no file");
      void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
      if (memory == MAP_FAILED) throw Error("no memory");
      std::vector<std::thread> threads;
      for (int i = 0; i < 40; ++i) threads.emplace_back([] { ::pause(); });
      if (::write(ready[1], "", 1) != 1) throw Error("no pipe");
      ::pause();
    });
    char byte;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    const std::uint64_t now = process_clock();
    child.signal(SIGKILL);
    while (process_exists(child.pid(), now)) std::this_thread::yield();
    siginfo_t info{};
    CHECK(::waitid(P_PID, id_t(child.pid()), &info, WEXITED | WNOWAIT | WNOHANG) == 0);
    CHECK(info.si_pid == child.pid());  // the kernel, too, takes it for ended: all of its threads
    child.join();
    ::close(ready[0]);
    ::close(ready[1]);
  }
}
