#include <shoal/internal/ipc/observe/session_view.h>

#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/activity.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/condition.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/joinable_queue.h>
#include <shoal/ipc/label.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/pipe.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/rlock.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/shared_bytes.h>
#include <shoal/ipc/simple_queue.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "tests/ipc/observe/own_session.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::own_session;

namespace {

/// This test's own session, from outside.
const SeenProcess& process_of(const SessionView& view, pid_t pid) {
  const auto found =
      std::find_if(view.processes.begin(), view.processes.end(), [&](auto& process) { return process.pid == pid; });
  REQUIRE(found != view.processes.end());
  return *found;
}

const SeenQueue* find_queue(const SessionView& view, const std::string& name) {
  const auto found =
      std::find_if(view.queues.begin(), view.queues.end(), [&](auto& queue) { return queue.name == name; });
  return found == view.queues.end() ? nullptr : &*found;
}

const SeenQueue& queue_of(const SessionView& view, const std::string& name) {
  const SeenQueue* queue = find_queue(view, name);
  REQUIRE(queue);
  return *queue;
}

/// Looks until what is to be seen is there: a watchdog ends a test that never sees it.
SessionView look_until(const SessionFile& file, const std::function<bool(const SessionView&)>& there) {
  for (;;) {
    SessionView view = look_at(file);
    if (there(view)) return view;
    ::sched_yield();
  }
}

}  // namespace

TEST_CASE("session view: processes with name, rank, label and what the kernel says of them") {
  const SessionFile file = own_session();
  SessionCore::current().describe_self("tester", 3);
  set_label("looks at itself");
  SimpleQueue<int> stay;
  Forked child([&] {
    SessionCore::current().describe_self("child 7", 7);
    stay.get();
  });
  const SessionView view = look_at(file);
  CHECK(view.complete);
  const SeenProcess& self = process_of(view, ::getpid());
  CHECK(self.name == "tester");
  CHECK(self.rank == 3);
  CHECK(self.label == "looks at itself");
  CHECK(self.state == SeenProcess::State::kAlive);
  CHECK(self.usage.found);
  CHECK(self.usage.state == 'R');
  CHECK(self.usage.parent == ::getppid());
  CHECK(self.usage.resident_bytes > 0);
  CHECK(self.usage.private_bytes > 0);
  CHECK(self.usage.private_bytes <= self.usage.resident_bytes);
  const SessionView later =
      look_until(file, [&](const SessionView& seen) { return process_of(seen, child.pid()).rank == 7; });
  const SeenProcess& other = process_of(later, child.pid());
  CHECK(other.name == "child 7");
  CHECK(other.label.empty());
  CHECK(view.process(self.slot) == &self);
  CHECK(view.process(4000) == nullptr);
  stay.put(1);
  CHECK(child.join() == 0);
  set_label("");
  CHECK(process_of(look_at(file), ::getpid()).label.empty());
}

TEST_CASE("session view: a label that is too long is cut between characters") {
  const SessionFile file = own_session();
  auto seen = [&](const std::string& text) {
    set_label(text);
    return process_of(look_at(file), ::getpid()).label;
  };
  CHECK(seen(std::string(55, 'x')) == std::string(55, 'x'));
  CHECK(seen(std::string(56, 'x')) == std::string(55, 'x'));
  CHECK(seen(std::string(54, 'x') + "\u00e4") == std::string(54, 'x'));
  CHECK(seen(std::string(53, 'x') + "\u00e4") == std::string(53, 'x') + "\u00e4");
  set_label("");
}

TEST_CASE("session view: PSS is read where it is asked for") {
  const SessionFile file = own_session();
  CHECK(process_of(look_at(file), ::getpid()).usage.pss_bytes == 0);
  CHECK(process_of(look_at(file, Pss::kRead), ::getpid()).usage.pss_bytes > 0);
}

TEST_CASE("session view: with PSS, what a process shares with the one that it was forked from is not its own") {
  const SessionFile file = own_session();
  constexpr std::size_t kBytes = 32 << 20;
  const std::vector<char> inherited(kBytes, 'x');
  Forked child([&] {
    CHECK(inherited[kBytes / 2] == 'x');
    ::pause();
  });
  const ProcessUsage usage = process_of(look_at(file, Pss::kRead), child.pid()).usage;
  CHECK(usage.resident_bytes > 0);
  CHECK(usage.private_bytes < kBytes / 2);
  CHECK(usage.pss_bytes >= usage.private_bytes);
  CHECK(read_memory_share(child.pid()).pss_bytes > 0);
  child.kill();
  CHECK(read_memory_share(child.pid()).pss_bytes == 0);
}

TEST_CASE("session view: queues with name, depth, bytes, and what went through them") {
  const SessionFile file = own_session();
  Queue<int> queue({.capacity = 5, .name = "numbers"});
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 4; ++i) {
      queue.put(i);
      queue.get();
    }
  queue.put(1);
  queue.put(2);
  const SessionView view = look_at(file);
  const SeenQueue& seen = queue_of(view, "numbers");
  CHECK(seen.kind == SeenQueue::Kind::kQueue);
  CHECK(seen.capacity == 5);
  CHECK(seen.depth == 2);
  CHECK(seen.put == 14);
  CHECK(seen.got == 12);
  CHECK(seen.bytes == 2 * sizeof(int));
  CHECK(seen.byte_capacity == 0);
  CHECK_FALSE(seen.closed);
  CHECK_FALSE(seen.unfinished);
  CHECK(seen.holders == std::vector<std::uint32_t>{process_of(view, ::getpid()).slot});
  for (int i = 3; i < 6; ++i) queue.put(i);
  queue.close();
  const SessionView later = look_at(file);
  CHECK(queue_of(later, "numbers").depth == 5);
  CHECK(queue_of(later, "numbers").closed);
}

TEST_CASE("session view: the name of a queue is cut where it is too long, and is the queue's wherever it goes") {
  const SessionFile file = own_session();
  Queue<int> queue({.name = "0123456789012345678901234567"});
  CHECK(queue.name() == "01234567890123456789012");
  CHECK(find_queue(look_at(file), queue.name()));
}

TEST_CASE("session view: bytes of blocks that travel with messages, with a byte capacity and without") {
  const SessionFile file = own_session();
  for (std::size_t byte_capacity : {std::size_t(0), std::size_t(1) << 24}) {
    Queue<SharedBytes> queue({.capacity = 8, .byte_capacity = byte_capacity, .name = "blocks"});
    Queue<std::string> texts({.capacity = 8, .byte_capacity = byte_capacity, .name = "texts"});
    auto bytes = [&](const char* name) { return queue_of(look_at(file), name).bytes; };
    CHECK(bytes("blocks") == 0);
    for (int i = 0; i < 3; ++i) queue.put(queue.loan(100'000));
    CHECK(*bytes("blocks") > 300'000);
    CHECK(*bytes("blocks") < 301'000);
    texts.put(std::string(5000, 'x'));
    CHECK(*bytes("texts") > 5000);
    CHECK(*bytes("texts") < 5200);
    // Over the end of the ring.
    for (int i = 0; i < 20; ++i) {
      texts.put(std::string(10, 'x'));
      texts.get();
    }
    CHECK(*bytes("texts") > 10);
    CHECK(*bytes("texts") < 30);
    if (byte_capacity != 0) CHECK(bytes("texts") == texts.bytes());
  }
}

TEST_CASE("session view: pipes, joinable queues and their tasks") {
  const SessionFile file = own_session();
  Pipe<int> pipe({.name = "tube"});
  pipe.first.send(1);
  JoinableQueue<int> tasks({.name = "tasks"});
  tasks.put(1);
  tasks.put(2);
  tasks.get();
  const SessionView view = look_at(file);
  CHECK(queue_of(view, "tube").kind == SeenQueue::Kind::kPipe);
  CHECK(std::count_if(view.queues.begin(), view.queues.end(), [](auto& queue) { return queue.name == "tube"; }) == 2);
  CHECK(queue_of(view, "tube").holders.size() == 1);
  const SeenQueue& seen = queue_of(view, "tasks");
  CHECK(seen.kind == SeenQueue::Kind::kJoinable);
  CHECK(seen.unfinished == 2);
  CHECK(seen.depth == 1);
  tasks.get();
  tasks.task_done();
  tasks.task_done();
  CHECK(queue_of(look_at(file), "tasks").unfinished == 0);
}

TEST_CASE("session view: who waits on which side of a queue, and since when") {
  const SessionFile file = own_session();
  Queue<int> empty({.capacity = 1, .name = "empty"}), full({.capacity = 1, .name = "full"});
  full.put(1);
  Forked getter([&] { empty.get(); });
  Forked putter([&] { full.put(2); });
  const std::uint64_t before = activity::now();
  look_until(file, [&](const SessionView& seen) {
    return !queue_of(seen, "empty").waits.empty() && !queue_of(seen, "full").waits.empty();
  });
  const SessionView view = look_at(file);  // once more: what begins during a look counts as begun when the look did
  const SeenWait& get = queue_of(view, "empty").waits.front();
  CHECK(get.what == "get");
  CHECK(view.process(get.slot)->pid == getter.pid());
  CHECK(get.thread == std::uint32_t(getter.pid()));
  CHECK(get.since <= view.time);
  CHECK(get.since + 60'000'000'000 > before);  // the machine may have been on for less
  const SeenWait& put = queue_of(view, "full").waits.front();
  CHECK(put.what == "put");
  CHECK(view.process(put.slot)->pid == putter.pid());
  // It is one wait, however often the waiter looks whether the others are alive.
  const SessionView later = look_until(file, [&](const SessionView& seen) {
    return seen.time > get.since + 3 * std::chrono::nanoseconds(kLivenessSlice).count();
  });
  REQUIRE(queue_of(later, "empty").waits.size() == 1);
  CHECK(queue_of(later, "empty").waits.front().since == get.since);
  empty.put(1);
  full.get();
  CHECK(getter.join() == 0);
  CHECK(putter.join() == 0);
  const SessionView end = look_at(file);
  CHECK(queue_of(end, "empty").waits.empty());
  CHECK(queue_of(end, "full").waits.empty());
}

TEST_CASE("session view: waits for locks, semaphores, joins and conditions are told apart") {
  const SessionFile file = own_session();
  Lock lock;
  RLock recursive;
  Semaphore semaphore(0);
  JoinableQueue<int> tasks({.name = "tasks"});
  Condition condition;
  tasks.put(1);
  lock.lock();
  recursive.lock();
  Forked locker([&] { lock.lock(), lock.unlock(); });
  Forked relocker([&] { recursive.lock(), recursive.unlock(); });
  Forked acquirer([&] { semaphore.acquire(); });
  Forked joiner([&] { tasks.join(); });
  Forked waiter([&] {
    std::unique_lock guard(condition);
    condition.wait();
  });
  const SessionView view = look_until(file, [&](const SessionView& seen) {
    std::size_t waits = 0;
    for (auto& process : seen.processes) waits += process.waits.size();
    return waits == 5;
  });
  auto wait_of = [&](const Forked& child) { return process_of(view, child.pid()).waits.at(0); };
  CHECK(wait_of(locker).what == "lock");
  CHECK(wait_of(relocker).what == "lock");
  CHECK(wait_of(acquirer).what == "semaphore");
  CHECK(wait_of(joiner).what == "join");
  CHECK(wait_of(joiner).block == queue_of(view, "tasks").block);
  CHECK(wait_of(waiter).what == "condition");
  CHECK(view.other_waits.size() == 2);
  const auto self = process_of(view, ::getpid()).slot;
  REQUIRE(view.locks.size() == 2);
  for (const SeenLock& seen : view.locks) {
    CHECK(seen.holder == self);
    CHECK(seen.waits.size() == 1);
  }
  CHECK(view.locks[0].recursive != view.locks[1].recursive);
  lock.unlock();
  recursive.unlock();
  semaphore.release();
  tasks.get();
  tasks.task_done();
  {
    std::unique_lock guard(condition);
    condition.notify();
  }
  for (Forked* child : {&locker, &relocker, &acquirer, &joiner, &waiter}) CHECK(child->join() == 0);
  CHECK(look_at(file).locks.empty());
}

TEST_CASE("session view: what a process held that was killed while it waited is shown until it is given back") {
  const SessionFile file = own_session();
  Queue<int> queue({.name = "never"});
  Forked child([&] {
    Hold block = allocate_shared(3 << 20);
    set_label("waits for ever");
    queue.get();
  });
  const pid_t pid = child.pid();
  look_until(file, [&](const SessionView& seen) { return !queue_of(seen, "never").waits.empty(); });
  child.kill();
  const SessionView view = look_at(file);
  const SeenProcess& dead = process_of(view, pid);
  CHECK(dead.state == SeenProcess::State::kEnded);
  CHECK(dead.label == "waits for ever");
  CHECK(dead.waits.empty());
  CHECK(dead.owned_bytes >= 3 << 20);
  CHECK(queue_of(view, "never").waits.empty());
  Session::current().reclaim_all();
  const SessionView after = look_at(file);
  CHECK(
      std::none_of(after.processes.begin(), after.processes.end(), [&](auto& process) { return process.pid == pid; }));
  CHECK(after.heap.deaths == view.heap.deaths + 1);
}

TEST_CASE("session view: the next process in a slot has nothing of the one before") {
  const SessionFile file = own_session();
  SimpleQueue<int> stay;
  std::uint32_t slot = 0;
  {
    Forked child([&] {
      set_label("the first");
      stay.get();
    });
    const SessionView view =
        look_until(file, [&](const SessionView& seen) { return process_of(seen, child.pid()).label == "the first"; });
    slot = process_of(view, child.pid()).slot;
  }
  Forked child([&] { stay.get(); });
  const SessionView view = look_at(file);
  CHECK(process_of(view, child.pid()).slot == slot);
  CHECK(process_of(view, child.pid()).label.empty());
}

TEST_CASE("session view: the heap's figures are those of heap_statistics") {
  const SessionFile file = own_session();
  Hold small = allocate_shared(1000), large = allocate_shared(9 << 20);
  std::vector<Hold> more;  // more hold words than a header has
  for (int i = 0; i < 30; ++i) more.push_back(large.share());
  Queue<SharedBytes> queue;
  queue.put(queue.loan(5000));
  // First, since reading a mapping's holes takes pages; the view takes none.
  const HeapStatistics statistics = heap_statistics();
  const SessionView view = look_at(file);
  CHECK(view.heap.blocks == statistics.blocks);
  CHECK(view.heap.bytes == statistics.bytes);
  CHECK(view.heap.message_bytes == statistics.message_bytes);
  CHECK(view.heap.committed_bytes == statistics.committed_bytes);
  CHECK(view.heap.idle_bytes == statistics.idle_bytes);
  CHECK(view.heap.peak_bytes == statistics.peak_bytes);
  CHECK(view.heap.address_bytes == statistics.address_bytes);
  CHECK(view.heap.resident_bytes == statistics.resident_bytes);
  CHECK(view.heap.allowed_by == statistics.limit);
  CHECK(view.heap.allowed_bytes > 0);
  REQUIRE(view.processes.size() == statistics.processes.size());
  for (std::size_t i = 0; i < view.processes.size(); ++i) {
    const SeenProcess& seen = view.processes[i];
    const HeapStatistics::Process& expected = statistics.processes[i];
    CHECK(seen.slot == expected.tag.slot());
    CHECK(seen.pid == expected.pid);
    CHECK(seen.extents == expected.extents);
    CHECK(seen.owned_blocks == expected.blocks);
    CHECK(seen.owned_bytes == expected.bytes);
    CHECK(seen.held_blocks == expected.held_blocks);
    CHECK(seen.held_bytes == expected.held_bytes);
  }
}

TEST_CASE("session view: looking takes no page of the session's memory") {
  const SessionFile file = own_session();
  allocate_shared(5 << 20);
  look_at(file);
  const std::uint64_t before = file.resident();
  const SessionView view = look_at(file);
  CHECK(file.resident() == before);
  CHECK(view.heap.resident_bytes == before);
}

TEST_CASE("session view: of a session in full use each look makes sense") {
  const SessionFile file = own_session();
  Queue<std::string> queue({.capacity = 7, .name = "busy"});
  SimpleQueue<int> stop;
  auto produce = [&] {
    for (int i = 0; stop.empty(); ++i) {
      set_label("message " + std::to_string(i));
      queue.try_put(std::string(std::size_t(i) % 400, 'x'));
    }
  };
  auto consume = [&] {
    while (stop.empty()) queue.try_get();
  };
  Forked first(produce), second(produce), third(consume);
  std::uint64_t last_put = 0, last_got = 0;
  for (int i = 0; i < 200; ++i) {
    const SessionView view = look_at(file);
    CHECK(view.complete);
    const SeenQueue& seen = queue_of(view, "busy");
    CHECK(seen.depth <= 7);
    CHECK(seen.put >= last_put);
    CHECK(seen.got + 7 >= last_got);  // got is cut down to what had been put a moment before
    CHECK(seen.holders.size() == 4);
    last_put = seen.put;
    last_got = seen.got;
    for (const Forked* child : {&first, &second}) {
      const std::string label = process_of(view, child->pid()).label;
      CHECK((label.empty() || label.starts_with("message ")));
    }
  }
  CHECK(last_put > 0);
  stop.put(1);
  for (Forked* child : {&first, &second, &third}) CHECK(child->join() == 0);
}
