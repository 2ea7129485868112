// Around a fork: the steps of shoal's parts, forks that come at a bad moment, and the threads that are not there after it.
#include <shoal/internal/ipc/fork/at_fork.h>

#include <pthread.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/ipc/fork/owner_process.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::FreshProcess;
namespace fresh = shoal::test::fresh;

namespace {

std::string steps;
bool had_slot_before = false, has_slot_in_child = true;

[[gnu::init_priority(101)]] const AtFork of_a_room({
    .before = []() noexcept { steps += "room before, "; },
    .in_parent = []() noexcept { steps += "room in parent"; },
    .in_child = []() noexcept { steps += "room in child"; },
});
[[gnu::init_priority(101)]] const AtFork of_the_process({
    .stage = ForkStage::kProcess,
    .before = []() noexcept { steps += "process before, "; },
    .in_parent = []() noexcept { steps += "process in parent, "; },
    .in_child = []() noexcept { steps += "process in child, "; },
});
[[gnu::init_priority(101)]] const AtFork of_a_heap({
    .stage = ForkStage::kHeap,
    .before =
        []() noexcept {
          steps += "heap before, ";
          had_slot_before = Session::exists() && SessionCore::current().self_if_known();
        },
    .in_parent = []() noexcept { steps += "heap in parent, "; },
    .in_child =
        []() noexcept {
          steps += "heap in child, ";
          has_slot_in_child = Session::exists() && SessionCore::current().self_if_known();
        },
});

// What a handler of the program's own has in its hands.
Hold inherited;
bool drops = false;

/// Ahead of shoal's, as a library's may be: so it is called behind them, with what they have locked.
[[gnu::constructor(101)]] void register_the_programs_own() {
  ::pthread_atfork(
      [] {
        if (drops) inherited.release();
      },
      nullptr, nullptr);
}

/// Forks without any of the care that Forked takes. What the child does not return from, by then, is for the watchdog.
template <class Body>
int in_bare_fork(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    try {
      body();
      ::_exit(0);
    } catch (const std::exception& error) {
      fresh::say(std::string("forked: ") + error.what());
      ::_exit(1);
    }
  }
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) throw std::runtime_error("the child cannot be waited for");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

/// A thread that stays for a while at this point on its way to a session.
std::thread thread_making_a_session(const char* point) {
  delay_at(point, {.mean = 1'000'000, .one_in = 1});
  std::thread making([] { Session::current().self(); });
  while (kill_points::delays_made() == 0) std::this_thread::yield();
  return making;
}

struct Counted {
  Counted() {
    if (++made == 1) throw std::domain_error("not the first time");
  }
  static inline int made = 0;
};

}  // namespace

TEST_CASE("body: a handler of the program lets go", "[.]") {
  fresh::run([] {
    inherited = allocate_shared(100);
    Forked child([] {
      drops = true;
      Forked grandchild([] {});
      if (grandchild.join() != 0) throw std::runtime_error("the grandchild failed");
    });
    if (child.join() != 0) throw std::runtime_error("the child failed");
  });
}

TEST_CASE("fork: the program's own handlers around it may let go of what they like") {
  FreshProcess process("body: a handler of the program lets go");
  CHECK(process.read_line().empty());
  CHECK(process.join() == 0);
}

TEST_CASE("fork: steps are taken by stages, before it the last first, and in the child after its slot is forgotten") {
  Session::current().self();
  steps.clear();
  Forked child([] {
    require(steps == "room before, heap before, process before, process in child, heap in child, room in child",
            steps.c_str());
    require(!has_slot_in_child, "the parent's slot");
  });
  CHECK(steps == "room before, heap before, process before, process in parent, heap in parent, room in parent");
  CHECK(had_slot_before);
  CHECK(child.join() == 0);
}

TEST_CASE("fork: each is counted, so that an object knows its own process from copies of that") {
  const std::uint32_t before = fork_count();
  const OwnerProcess owner;
  CHECK(owner.is_this());
  CHECK(owner.pid() == ::getpid());
  Forked child([&] {
    require(fork_count() == before + 1, "another count");
    require(!owner.is_this() && owner.pid() == ::getppid(), "not the parent's");
    require(OwnerProcess().is_this(), "not its own");
  });
  CHECK(child.join() == 0);
  CHECK(fork_count() == before);
  CHECK(owner.is_this());
}

TEST_CASE("body: fork while a session is put in its place", "[.]") {
  fresh::run([] {
    std::thread making = thread_making_a_session("session.install.stored");
    const int end = in_bare_fork([] {
      const ProcessTag own = Session::current().self();
      const int end_below = in_bare_fork([own] { require(Session::current().self() != own, "it acts as its parent"); });
      require(end_below == 0, "the fork's own fork failed");
    });
    making.join();
    require(end == 0, "the fork failed");
  });
}

TEST_CASE(
    "fork: while another thread puts the session in its place, the child's own forks are processes of their own") {
  FreshProcess process("body: fork while a session is put in its place");
  CHECK(process.read_line().empty());
  CHECK(process.join() == 0);
}

TEST_CASE("body: fork while a session is made", "[.]") {
  fresh::run([] {
    std::thread making = thread_making_a_session("session.create.begun");
    const int end = in_bare_fork([] {
      ::alarm(20);
      require(bool(Session::current().self()), "no slot");
    });
    making.join();
    require(end == 0, "the fork failed");
  });
}

TEST_CASE("fork: while another thread makes the session, the child makes one of its own") {
  FreshProcess process("body: fork while a session is made");
  CHECK(process.read_line().empty());
  CHECK(process.join() == 0);
}

TEST_CASE("one per process: what its making throws comes out, and it is made again; a child forgets its parent's") {
  static constinit OnePerProcess<Counted> one;
  Counted::made = 0;
  CHECK_THROWS_AS(one.get(), std::domain_error);
  CHECK(one.if_there() == nullptr);
  Counted& made = one.get();
  CHECK(&one.get() == &made);
  CHECK(one.if_there() == &made);
  one.forget();
  CHECK(one.if_there() == nullptr);
  CHECK(&one.get() != &made);
}

TEST_CASE("service threads: known from their first to their last moment, and none of them in a forked child") {
  Forked child([] {
    std::atomic<pid_t> id{0};
    std::atomic<bool> end{false};
    std::thread one = make_service_thread("one", [&] {
      id = ::gettid();
      id.notify_all();
      end.wait(false);
    });
    std::atomic<bool> other_end{false};
    std::thread other = make_service_thread("other", [&] { other_end.wait(false); });
    id.wait(0);
    require(is_service_thread(id), "not known");
    require(!is_service_thread(::gettid()), "the main thread is one");
    require(in_bare_fork([&] { require(!is_service_thread(id), "the parent's is known here"); }) == 0, "in the child");
    end = true;
    end.notify_all();
    one.join();
    require(!is_service_thread(id), "known after its end");
    other_end = true;
    other_end.notify_all();
    other.join();
  });
  CHECK(child.join() == 0);
}

// What another thread of the parent was initializing at the fork, the child would wait for without an end. Each thread
// has its own of those that are thread_local; the heap's looks at SHOAL_KEEP_IDLE before there is a session.
TEST_CASE("fork: nothing of ipc is initialized at its first use in a function, behind the compiler's lock") {
  const std::unique_ptr<FILE, int (*)(FILE*)> listing(::popen("nm -C /proc/$PPID/exe 2>&1", "r"), &::pclose);
  REQUIRE(listing);
  std::vector<std::string> guarded;
  bool has_symbols = false;
  char line[4096];
  while (::fgets(line, sizeof line, listing.get())) {
    const std::string symbol(line);
    has_symbols = has_symbols || symbol.find("shoal::RecentBudget::of_process()") != std::string::npos;
    if (symbol.find("guard variable for shoal::") == std::string::npos) continue;
    const bool is_known = symbol.find("shoal::thread_number()") != std::string::npos ||
                          symbol.find("shoal::BlockCache::idle_mark") != std::string::npos;
    if (!is_known) guarded.push_back(symbol);
  }
  CHECK(has_symbols);
  CHECK(guarded == std::vector<std::string>());
}
