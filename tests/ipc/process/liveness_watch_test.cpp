// Many that sleep: one of them looks after the dead for all, and the others learn of it, whoever it was that looked.
#include <shoal/internal/ipc/process/liveness_watch.h>

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/condition.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/joinable_queue.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/session.h>

#include <algorithm>
#include <optional>

#include "tests/ipc/sync/fixtures.h"
#include "tests/support/sleeps.h"

using namespace shoal;
using namespace shoal::test;

namespace {

template <class Failure>
void must_throw(const std::function<void()>& wait) {
  try {
    wait();
  } catch (const Failure&) {
    return;
  }
  throw Error("the wait ended, and there is nobody who could have ended it");
}

/// Each kind of thing that this process waits on and another one has.
struct Things {
  Queue<int> empty{1}, full{1};
  Semaphore semaphore{0};
  Event event;
  Lock lock;
  Condition condition{lock};
  Barrier barrier{1000};
  Pipe<int> pipe, other_pipe;
  JoinableQueue<int> tasks{1};

  Things() {
    full.put(1);
    tasks.put(1);
  }
  /// In the other process.
  void stay() {
    tasks.get();
    for (;;) ::pause();
  }
  /// When that one is dead.
  void wait_for(const std::string& kind) {
    if (kind == "get") must_throw<PeerDied>([&] { empty.get(); });
    if (kind == "put") must_throw<PeerDied>([&] { full.put(2); });
    if (kind == "acquire") must_throw<PeerDied>([&] { semaphore.acquire(); });
    if (kind == "event") must_throw<PeerDied>([&] { event.wait(); });
    if (kind == "condition")
      must_throw<PeerDied>([&] {
        std::unique_lock hold(lock);
        condition.wait();
      });
    if (kind == "barrier") must_throw<BrokenBarrier>([&] { barrier.wait(); });
    if (kind == "receive") must_throw<EndOfFile>([&] { pipe.first.recv(); });
    if (kind == "several") {
      const AnyConnection both[] = {pipe.first, other_pipe.first};
      if (wait(both).empty()) throw Error("nothing is ready");
    }
    if (kind == "join") must_throw<PeerDied>([&] { tasks.join(); });
  }
};

}  // namespace

TEST_CASE("liveness: each kind of wait ends when the peer is dead, also where who was to look is killed or stopped") {
  const std::string kind =
      GENERATE("get", "put", "acquire", "event", "condition", "barrier", "receive", "several", "join");
  const bool killed = GENERATE(true, false);
  CAPTURE(kind, killed);
  // Made first, so that it has nothing of what is waited for. It goes on when it is told, and claims the next look.
  Forked looker([&] {
    ::raise(SIGSTOP);
    LivenessWatch watch;
    if (killed) kill_at("liveness.claimed");
    until([&] { return watch.claim_look(SessionCore::current()); });
    ::raise(SIGSTOP);
  });
  int status;
  REQUIRE(::waitpid(looker.pid(), &status, WUNTRACED) == looker.pid());
  {
    Things things;
    Forked peer([&] { things.stay(); });
    until([&] { return things.tasks.qsize() == 0; });
    things.pipe.second.close();
    things.other_pipe.second.close();
    peer.kill();
    looker.signal(SIGCONT);
    if (killed)
      REQUIRE(looker.join() == -SIGKILL);
    else
      REQUIRE(::waitpid(looker.pid(), &status, WUNTRACED) == looker.pid());
    things.wait_for(kind);
  }
}

TEST_CASE("liveness: of many that sleep one asks for all, and most sleep long") {
  const int waiters = std::min(30 * test_scale(), 300);
  const SessionLayout& layout = SessionCore::current().layout();
  Queue<int> queue(waiters);
  std::vector<std::unique_ptr<Forked>> all;
  for (int i = 0; i < waiters; ++i) all.push_back(std::make_unique<Forked>([&] { queue.get(); }));
  for (auto& waiter : all) until_asleep(*waiter);
  auto sleeps = [&] {
    long sum = 0;
    for (auto& waiter : all) sum += sleeps_of(*waiter);
    return sum;
  };
  // Until all of them are past their first nap, which is a short one.
  const std::uint64_t first = layout.looks + 10;
  until([&] { return layout.looks >= first; });

  const auto start = std::chrono::steady_clock::now();
  const long sleeps_before = sleeps();
  const std::uint64_t looks_before = layout.looks, questions_before = layout.liveness_questions;
  until([&] { return layout.looks >= looks_before + 20; });
  const std::uint64_t questions = layout.liveness_questions - questions_before;
  const std::uint64_t looks = layout.looks - looks_before;
  const long slept = sleeps() - sleeps_before;
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Each look asks for each process but the one that looks: this one and all waiters but one.
  CHECK(questions <= (looks + 1) * std::uint64_t(waiters));
  CHECK(double(looks) <= took / std::chrono::duration<double>(kLivenessSlice).count() + 2);
  // Twice a second each, and seven that wake every 150 ms besides the one that looks.
  CHECK(double(slept) <= (2 * waiters + 60) * took + waiters + 8);
  for (int i = 0; i < waiters; ++i) queue.put(i);
  for (auto& waiter : all) CHECK(waiter->join() == 0);
}

TEST_CASE("liveness: where all others are killed at once, those that watch among them, the last one learns of it") {
  std::optional<Queue<int>> queue(1);
  std::vector<std::unique_ptr<Forked>> all;
  for (int i = 0; i < 20; ++i)
    all.push_back(std::make_unique<Forked>([&] { must_throw<PeerDied>([&] { queue->get(); }); }));
  queue.reset();
  for (auto& waiter : all) until_asleep(*waiter);
  const std::uint64_t first = SessionCore::current().layout().looks + 10;
  until([&] { return SessionCore::current().layout().looks >= first; });
  const std::size_t last = std::mt19937(test_seed())() % all.size();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i != last) all[i]->signal(SIGKILL);
  CHECK(all[last]->join() == 0);
}
