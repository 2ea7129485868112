// A reclaimer that is late, or that finds what nobody had finished: it takes nobody for dead who lives, believes no
// memory that was not written yet, and comes to an end.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/pipe/end.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using namespace std::chrono_literals;
using shoal::test::Forked;
using shoal::test::stop_here;

namespace {

bool is_filled(const Hold& block, int with) {
  return std::all_of(block.data(), block.data() + block.size(),
                     [&](std::byte byte) { return byte == std::byte(with); });
}

}  // namespace

TEST_CASE("reclaim windows: a reclaimer that is late does not take the slot's next process for the dead one") {
  SessionCore& session = SessionCore::current();
  Forked first([] { stop_here(); });
  first.wait_until_stopped();
  const ProcessTag dead = session.find(first.pid());
  REQUIRE(dead);
  Forked late([=] {
    stop_here();
    stop_at("reclaim.before_claim");
    SessionCore::current().reclaim(dead);
  });
  late.wait_until_stopped();
  first.kill();
  late.signal(SIGCONT);
  late.wait_until_stopped();  // it knows that the first one is dead, and has done nothing about it
  session.reclaim(dead);
  Forked next([] {
    std::vector<Hold> kept;
    for (int i = 0; i < 20; ++i) {
      kept.push_back(allocate_shared(60'000));
      std::memset(kept.back().data(), 77, kept.back().size());
    }
    stop_here();
    for (const Hold& block : kept)
      if (!is_filled(block, 77)) throw Error("somebody wrote to the block");
  });
  next.wait_until_stopped();
  const ProcessTag alive = session.find(next.pid());
  REQUIRE(alive.slot() == dead.slot());
  late.signal(SIGCONT);
  CHECK(late.join() == 0);
  CHECK(session.is_alive(alive));
  std::vector<Hold> taken;
  for (int i = 0; i < 60; ++i) {
    taken.push_back(allocate_shared(60'000));
    std::memset(taken.back().data(), 1, taken.back().size());
  }
  next.signal(SIGCONT);
  CHECK(next.join() == 0);
  for (const Hold& block : taken) CHECK(is_filled(block, 1));
}

TEST_CASE("reclaim windows: a chunk of hold words that was never written is no chunk of anything") {
  Forked maker([] {
    {
      std::vector<Hold> user;  // what lies where the chunk will be made
      for (int i = 0; i < 20; ++i) {
        user.push_back(allocate_shared(sizeof(HoldChunk)));
        std::memset(user.back().data(), 0x7f, user.back().size());
      }
    }
    Hold block = allocate_shared(100);
    std::vector<Hold> more;
    kill_at("heap.chunk.made");
    for (int i = 0; i < 20; ++i) more.push_back(block.share());
  });
  CHECK(maker.join() == -SIGKILL);
  const std::size_t before = heap_bytes_in_use();
  Forked reclaimer([] { Session::current().reclaim_all(); });
  CHECK(reclaimer.join() == 0);
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() + sizeof(HoldChunk) + 100 == before);
}

TEST_CASE("reclaim windows: no two ends of pipes have one owner's word, also where their headers are fresh") {
  std::vector<Ring> rings;
  std::vector<Hold> ends;
  std::set<std::uint32_t> words;
  for (int i = 0; i < 100; ++i) {
    rings.push_back(Ring::create(2, 1));
    rings.push_back(Ring::create(2, 1));
    const Ring &there = rings[rings.size() - 2], &back = rings.back();
    ends.push_back(pipe_end::create(&there, &back, 0));
    ends.push_back(pipe_end::create(&back, &there, 1));
  }
  for (const Hold& end : ends) words.insert(pipe_end::open(end).owner);
  CHECK(words.size() == ends.size());
}

TEST_CASE("reclaim windows: who never waits for long gets the message behind a dead writer's cell all the same") {
  const auto timeout = GENERATE(50ms, 0ms);
  Queue<int> queue(16);
  // A copy of the handle as after a plain fork(), never adopted: the dead one has no hold on the ring. And nobody of
  // the session waits for the process: only a look finds it dead.
  const pid_t child = ::fork();
  if (child == 0) {
    kill_at("ring.put.claimed");
    queue.put(1);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  queue.put(2);
  std::optional<int> got;  // or the watchdog ends it
  while (!got) try {
      got = queue.get(timeout);
    } catch (const TimeoutError&) {
    }
  CHECK(got == 2);
  Session::current().reclaim_all();
}

TEST_CASE("reclaim windows: a ring that is shared and dropped all the time keeps no reclaimer busy") {
  Hold mail = allocate_shared(64);
  auto& stop = *new (mail.data()) std::atomic<bool>(false);
  Queue<int> queue(100'000);
  Forked dead([] { stop_here(); });
  dead.wait_until_stopped();
  Forked sharer([&] {
    while (!stop) Queue<int> copy(queue);
  });
  dead.kill();
  Session::current().reclaim_all();  // or the watchdog ends it
  CHECK(SessionCore::current().find(dead.pid()) == ProcessTag());
  stop = true;
  CHECK(sharer.join() == 0);
}
