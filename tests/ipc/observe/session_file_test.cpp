// What may be found in place of a session's memory, and by whom.
#include <errno.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/listener.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;

namespace {

/// A copy of this test's session: the pages that there are.
Fd copy_session() {
  const int from = SessionCore::current().descriptors().memory;
  struct stat status{};
  REQUIRE(::fstat(from, &status) == 0);
  Fd to(::memfd_create("copy", MFD_CLOEXEC));
  REQUIRE(::ftruncate(to.get(), status.st_size) == 0);
  std::vector<char> page(4096);
  // Through a duplicate of its own the position would be the session's too: SEEK_DATA moves it, and nobody uses it.
  for (off_t at = 0; (at = ::lseek(from, at, SEEK_DATA)) >= 0; at += off_t(page.size())) {
    REQUIRE(::pread(from, page.data(), page.size(), at) == ssize_t(page.size()));
    REQUIRE(::pwrite(to.get(), page.data(), page.size(), at) == ssize_t(page.size()));
  }
  return to;
}

template <class T>
void overwrite(const Fd& file, std::uint64_t at, const T& value) {
  REQUIRE(::pwrite(file.get(), &value, sizeof value, off_t(at)) == ssize_t(sizeof value));
}

Fd duplicate(const Fd& file) { return Fd(::dup(file.get())); }

std::string refusal(Fd file) {
  try {
    SessionFile session(std::move(file));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("session file: a process's session is found by its pid, that of a child is the same one") {
  Session::current().self();
  Queue<int> stay;
  Forked child([&] { stay.get(); });
  const auto mine = SessionFile::of_process(::getpid());
  const auto childs = SessionFile::of_process(child.pid());
  REQUIRE(mine);
  REQUIRE(childs);
  CHECK(mine->is_same(*childs));
  CHECK(find_session(std::to_string(child.pid())).file.is_same(*mine));
  CHECK(find_session(std::to_string(child.pid())).process == child.pid());
  const auto all = find_sessions();
  CHECK(std::count_if(all.begin(), all.end(), [&](auto& found) { return found.file.is_same(*mine); }) == 1);
}

TEST_CASE("session file: a session that listens is found by its name, from its own process too") {
  const std::string name = "observe-" + std::to_string(::getpid());
  CHECK_THROWS_WITH(find_session(name), ContainsSubstring("no session listens under the name '" + name + "'"));
  {
    Listener listener = Session::listen(name);
    CHECK(find_session(name).process == ::getpid());
    // The look has not taken the name away.
    Forked other([&] { CHECK_THROWS_AS(Session::listen(name), Error); });
    CHECK(other.join() == 0);
    CHECK(find_session(name).file.is_same(*SessionFile::of_process(::getpid())));
  }
  CHECK_THROWS_AS(find_session(name), Error);
  CHECK_THROWS_AS(find_session("no/name"), std::invalid_argument);
}

// Without descriptors UBSan finds fault by itself: it looks into memory by way of a pipe.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("session file: if the system refuses to look into a process, the error has its errno") {
  Session::current().self();
  Forked child([] {
    const rlimit none{3, 3};  // 0, 1 and 2 are taken
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0) ::_exit(2);
    try {
      SessionFile::of_process(::getpid());
    } catch (const SystemError& error) {
      ::_exit(error.error_number() == EMFILE ? 0 : 3);
    }
    ::_exit(4);
  });
  CHECK(child.join() == 0);
}
#endif

TEST_CASE("session file: a process without a session, one that is gone and one of another user are refused by name") {
  CHECK_THROWS_WITH(find_session("1999999999"), ContainsSubstring("there is no process 1999999999"));
  Forked child([] {
    // Its parent's parent has no session of its own, as a shell has none.
    Forked without([] { ::execlp("sleep", "sleep", "60", nullptr); });
    while (true) {
      try {
        if (!SessionFile::of_process(without.pid())) break;
      } catch (const Error&) {
      }
      ::sched_yield();
    }
    CHECK_THROWS_WITH(find_session(std::to_string(without.pid())), ContainsSubstring("is part of no session"));
  });
  CHECK(child.join() == 0);
  if (::geteuid() != 0) return;
  const pid_t parent = ::getpid();
  Forked stranger([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    try {
      find_session(std::to_string(parent));
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).find("belongs to another user") != std::string::npos ? 0 : 3);
    }
    ::_exit(4);
  });
  CHECK(stranger.join() == 0);
}

TEST_CASE("session file: what is no session, or one of another version, or damaged, is refused") {
  Session::current().self();
  const Fd file = copy_session();
  CHECK(refusal(duplicate(file)) == "none");
  CHECK_THAT(refusal(Fd(::memfd_create("empty", MFD_CLOEXEC))), ContainsSubstring("not the memory of a session"));
  overwrite(file, offsetof(SessionLayout, version), std::uint32_t(SessionLayout::kVersion + 1));
  CHECK_THAT(refusal(duplicate(file)), ContainsSubstring("another version of shoal"));
  overwrite(file, offsetof(SessionLayout, version), std::uint32_t(SessionLayout::kVersion));
  for (const std::size_t field :
       {offsetof(SessionLayout, processes), offsetof(SessionLayout, activities), offsetof(SessionLayout, extents),
        offsetof(SessionLayout, headers), offsetof(SessionLayout, data), offsetof(SessionLayout, extent_count)}) {
    std::uint64_t sound = 0;
    REQUIRE(::pread(file.get(), &sound, sizeof sound, off_t(field)) == sizeof sound);
    for (const std::uint64_t value : {~std::uint64_t(0), ~std::uint64_t(0) << 21, std::uint64_t(1) << 63}) {
      overwrite(file, field, value);
      CHECK_THAT(refusal(duplicate(file)), ContainsSubstring("damaged"));
    }
    overwrite(file, field, sound);
  }
  CHECK(refusal(duplicate(file)) == "none");
}

TEST_CASE("session file: a file that is cut short under the reader's eyes ends the look, and nothing else") {
  Queue<int> queue({.name = "cut"});
  const Fd file = copy_session();
  const SessionFile session(duplicate(file));
  CHECK_FALSE(look_at(session).queues.empty());
  REQUIRE(::ftruncate(file.get(), 4096) == 0);
  CHECK(look_at(session).queues.empty());
  REQUIRE(::ftruncate(file.get(), 0) == 0);
  CHECK_FALSE(look_at(session).complete);
}

TEST_CASE("session file: random damage anywhere is survived, and ends") {
  Queue<std::string> queue({.capacity = 40, .name = "victim"});
  Pipe<int> pipe;
  Hold large = allocate_shared(5 << 20);
  std::vector<Hold> more;
  for (int i = 0; i < 20; ++i) more.push_back(large.share());
  for (int i = 0; i < 20; ++i) queue.put(std::string(std::size_t(i) * 40, 'x'));
  const Fd file = copy_session();
  const SessionFile session(duplicate(file));
  // Where there are pages: damage elsewhere would not be looked at.
  std::vector<off_t> pages;
  for (off_t at = 0; (at = ::lseek(file.get(), at, SEEK_DATA)) >= 0; at += 4096) pages.push_back(at);
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<char> saved(4096);
  for (int round = 0; round < 60; ++round) {
    const off_t page = pages[random() % pages.size()];
    REQUIRE(::pread(file.get(), saved.data(), saved.size(), page) == ssize_t(saved.size()));
    for (int i = 0; i < 64; ++i) {
      // Wild numbers, and such as nearly fit.
      const std::uint64_t wild = random();
      const std::uint64_t near = session.plan().headers + (random() % 100'000) * kHeaderBytes;
      const std::uint64_t value = random() % 3 == 0 ? wild : random() % 2 == 0 ? near : random() % 16;
      overwrite(file, std::uint64_t(page) + random() % 512 * 8, value);
    }
    const SessionView view = look_at(session);
    CHECK(view.processes.size() <= ProcessTag::kSlotCount);
    for (const SeenQueue& seen : view.queues) CHECK(seen.depth <= seen.capacity);
    // Every second round goes on with the damage.
    if (round % 2 == 0) REQUIRE(::pwrite(file.get(), saved.data(), saved.size(), page) == ssize_t(saved.size()));
  }
}
