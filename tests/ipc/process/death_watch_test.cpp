// Deaths are told by sentries, where nobody looks for them, and whoever of these dies or stops.
#include <shoal/internal/ipc/process/death_watch.h>

#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/simple_queue.h>
#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Claims every look at the dead, again and again, and looks at nothing: while it lives, sentries alone find anybody.
class NoLooks {
 public:
  NoLooks()
      : process_([&] {
          auto& watches = SessionCore::current().layout().watches;
          for (;;) {
            timespec now{};
            ::clock_gettime(CLOCK_MONOTONIC, &now);
            const auto until = std::uint64_t(now.tv_sec) * 1000 + std::uint64_t(now.tv_nsec) / 1'000'000 + 900;
            for (auto& watch : watches) watch = until;
            ::usleep(1000);
          }
        }) {
    until([&] { return SessionCore::current().layout().watches[0] != 0; });
  }

 private:
  Forked process_;
};

pid_t sentry(std::size_t place) {
  SessionCore& session = SessionCore::current();
  const auto tag = ProcessTag::from_word(std::uint32_t(session.layout().sentries[place].load()));
  return tag && session.is_alive(tag) ? session.record(tag.slot()).pid.load() : 0;
}

/// Takes part, and waits for the process that alone could put something into the queue.
std::unique_ptr<Forked> start_waiter(std::optional<Queue<int>>& queue, SimpleQueue<int>& ready) {
  return std::make_unique<Forked>([&] {
    const DeathWatch watch;
    ready.put(1);
    try {
      queue->get();
    } catch (const PeerDied&) {
      return;
    }
    throw Error("something came");
  });
}

}  // namespace

TEST_CASE("death watch: a sentry tells of a death at once, where nobody looks, and also of the first sentry's") {
  const bool of_first = GENERATE(false, true);
  CAPTURE(of_first);
  SimpleQueue<int> ready;
  std::optional<Queue<int>> queue(1);
  std::unique_ptr<Forked> peer;
  auto start_peer = [&] {
    peer = std::make_unique<Forked>([&] {
      std::optional<DeathWatch> watch;
      if (of_first) watch.emplace();
      ready.put(1);
      for (;;) ::pause();
    });
    ready.get();
  };
  if (of_first) {
    start_peer();
    until([&] { return sentry(0) == peer->pid(); });
  }
  const auto waiter = start_waiter(queue, ready);
  ready.get();
  if (!of_first) start_peer();
  until([&] { return sentry(of_first ? 1 : 0) == waiter->pid(); });
  queue.reset();
  const NoLooks none;
  until_asleep(*waiter);
  peer->signal(SIGKILL);
  CHECK(waiter->join() == 0);
}

TEST_CASE("death watch: where both sentries are stopped others take their places") {
  SimpleQueue<int> ready;
  std::optional<Queue<int>> queue(1);
  std::vector<std::unique_ptr<Forked>> first;
  for (int i = 0; i < 2; ++i) {
    first.push_back(start_waiter(queue, ready));
    ready.get();
    until([&] { return sentry(std::size_t(i)) == first.back()->pid(); });
  }
  Forked peer([&] {
    for (;;) ::pause();
  });
  const auto waiter = start_waiter(queue, ready);
  ready.get();
  queue.reset();
  const NoLooks none;
  for (auto& stopped : first) stopped->signal(SIGSTOP);
  until([&] { return sentry(0) != 0 && sentry(0) != first[0]->pid() && sentry(0) != first[1]->pid(); });
  for (auto& stopped : first) stopped->kill();
  peer.signal(SIGKILL);
  CHECK(waiter->join() == 0);
}

TEST_CASE("death watch: one that takes part no longer gives its place up, with all its descriptors") {
  {
    const DeathWatch watch, again;
    CHECK(sentry(0) == ::getpid());
    Forked child([] {
      // None of the parent's is here; it may have its own.
      if (sentry(0) == ::getpid()) throw Error("a sentry was inherited");
      const DeathWatch own;
      until([&] { return sentry(1) == ::getpid(); });
    });
    CHECK(child.join() == 0);
  }
  CHECK(sentry(0) == 0);
}

#ifndef __SANITIZE_ADDRESS__  // UBSan, which is with it, opens descriptors itself
TEST_CASE("death watch: without descriptors deaths are found by looks") {
  SimpleQueue<int> ready;
  std::optional<Queue<int>> queue(1);
  Forked waiter([&] {
    const int next = ::dup(0);
    ::close(next);
    // One is left, with which a look asks the kernel, and a sentry needs more.
    const rlimit one{rlim_t(next) + 1, rlim_t(next) + 1};
    ::setrlimit(RLIMIT_NOFILE, &one);
    const DeathWatch watch;
    if (sentry(0) == ::getpid()) throw Error("it has descriptors");
    ready.put(1);
    try {
      queue->get();
    } catch (const PeerDied&) {
      return;
    }
    throw Error("something came");
  });
  ready.get();
  Forked peer([&] {
    for (;;) ::pause();
  });
  queue.reset();
  peer.signal(SIGKILL);
  CHECK(waiter.join() == 0);
}
#endif
