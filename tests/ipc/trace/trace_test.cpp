#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/internal/ipc/observe/tracer.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/simple_queue.h>
#include <shoal/ipc/trace_span.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;

namespace {

struct Event {
  pid_t pid;
  TraceRecord record;
  std::string name;
};

class Collected {
 public:
  Tracer::Visit visitor() {
    return [this](const TracedProcess& process, const TraceRecord& record) {
      events.push_back({process.pid, record, record.name});
    };
  }
  std::vector<Event> of(pid_t pid, TraceKind kind) const {
    std::vector<Event> result;
    std::copy_if(events.begin(), events.end(), std::back_inserter(result),
                 [&](const Event& event) { return event.pid == pid && event.record.kind == kind; });
    return result;
  }
  std::vector<Event> events;
};

int trace_blocks() {
  int count = 0;
  Session::current().heap().for_each_block([&](BlockOffset, BlockHeader& header) {
    count += BlockHeader::kind(header.state.load()) == BlockHeader::kLive && header.type.load() == BlockType::kTrace;
  });
  return count;
}

void write_span(const char* name) { TraceSpan span(name); }

}  // namespace

TEST_CASE("trace: while nobody traces nothing is written and no memory taken") {
  CHECK_FALSE(trace::is_on());
  SimpleQueue<int> queue;
  Forked child([&] {
    write_span("unseen");
    queue.put(1);
  });
  CHECK(child.join() == 0);
  CHECK(queue.get() == 1);
  CHECK(trace_blocks() == 0);
}

TEST_CASE("trace: messages, waits and spans of several processes come out whole, in order and by name") {
  Queue<std::string> queue({.capacity = 2, .name = "words"});
  Collected all;
  pid_t producer_pid = 0, consumer_pid = 0;
  {
    Tracer tracer;
    CHECK(trace::is_on());
    Forked consumer([&] {
      for (int i = 0; i < 20; ++i) queue.get();
    });
    // The consumer sleeps before the first message comes.
    for (bool asleep = false; !asleep;)
      for (const SeenProcess& process : look_at(*SessionFile::of_process(::getpid())).processes)
        asleep |= process.pid == consumer.pid() && !process.waits.empty();
    Forked producer([&] {
      for (int i = 0; i < 20; ++i) {
        TraceSpan span("step", std::uint64_t(i));
        queue.put("a word");
      }
    });
    CHECK(producer.join() == 0);
    CHECK(consumer.join() == 0);
    CHECK(tracer.drain(all.visitor()));
    tracer.finish(all.visitor());
    CHECK_FALSE(trace::is_on());
    producer_pid = producer.pid();
    consumer_pid = consumer.pid();
    CHECK(tracer.processes().size() == 2);
    for (const TracedProcess& process : tracer.processes()) CHECK(process.lost == 0);
    const auto waits = all.of(consumer_pid, TraceKind::kWait);
    REQUIRE_FALSE(waits.empty());
    CHECK(tracer.name_of_wait(waits.front().record.subject) == "get words");
  }
  const auto puts = all.of(producer_pid, TraceKind::kPut), gets = all.of(consumer_pid, TraceKind::kGet),
             steps = all.of(producer_pid, TraceKind::kSpan);
  REQUIRE(puts.size() == 20);
  REQUIRE(gets.size() == 20);
  REQUIRE(steps.size() == 20);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(puts[i].name == "words");
    CHECK(gets[i].name == "words");
    CHECK(puts[i].record.link == gets[i].record.link);  // the same message
    CHECK(puts[i].record.subject == gets[i].record.subject);
    CHECK(puts[i].record.value == gets[i].record.value);
    CHECK(puts[i].record.value > 6);
    CHECK(puts[i].record.start <= puts[i].record.end);
    CHECK(puts[i].record.start < gets[i].record.end);
    CHECK(puts[i].record.thread == std::uint32_t(producer_pid));
    CHECK(steps[i].name == "step");
    CHECK(steps[i].record.value == i);
    // The put lies in its step, and steps follow each other.
    CHECK(steps[i].record.start <= puts[i].record.start);
    CHECK(puts[i].record.end <= steps[i].record.end);
    if (i > 0) CHECK(steps[i - 1].record.end <= steps[i].record.start);
  }
  CHECK(trace_blocks() == 0);
}

TEST_CASE("trace: events that find no room are counted, the others are whole") {
  Collected all;
  Tracer tracer;
  Forked child([] {
    for (std::uint64_t i = 0; i < TraceBuffer::kRecords + 100; ++i) TraceSpan span("many", i);
  });
  CHECK(child.join() == 0);
  tracer.drain(all.visitor());
  CHECK(all.events.size() == TraceBuffer::kRecords);
  REQUIRE(tracer.processes().size() == 1);
  CHECK(tracer.processes().front().lost == 100);
  for (std::size_t i = 0; i < all.events.size(); ++i) CHECK(all.events[i].record.value == i);
}

TEST_CASE("trace: what a killed process wrote is still there, and then its memory is free") {
  Collected all;
  pid_t pid = 0;
  {
    Tracer tracer;
    Forked child([] {
      for (int i = 0; i < 5; ++i) write_span("before the end");
      ::raise(SIGKILL);
    });
    pid = child.pid();
    CHECK(child.join() == -SIGKILL);
    // Whoever reclaims it does not take the tracer's.
    Session::current().reclaim_all();
    CHECK(trace_blocks() == 1);
    // Its slot is another's before the tracer looks.
    Forked next([] { write_span("of the next"); });
    CHECK(next.join() == 0);
    tracer.finish(all.visitor());
    CHECK(all.of(next.pid(), TraceKind::kSpan).size() == 1);
  }
  CHECK(all.of(pid, TraceKind::kSpan).size() == 5);
  Session::current().reclaim_all();
  CHECK(trace_blocks() == 0);
}

TEST_CASE("trace: a process killed at any point of writing an event leaves whole events and no memory") {
  for (const char* point : {"trace.make.typed", "trace.make.held", "trace.write.recorded"}) {
    CAPTURE(point);
    Collected all;
    {
      Tracer tracer;
      Forked child([&] {
        kill_at(point, 0);
        write_span("first");
        write_span("second");
      });
      CHECK(child.join() == -SIGKILL);
      Session::current().reclaim_all();
      tracer.finish(all.visitor());
    }
    CHECK(all.events.empty());
    CHECK(trace_blocks() == 0);
  }
}

TEST_CASE("trace: the second tracer is refused, by the name of the first") {
  SessionCore::current().describe_self("the first", -1);
  auto tracer = std::make_unique<Tracer>();
  Forked second([] {
    try {
      Tracer refused;
    } catch (const Error& error) {
      const std::string text = error.what();
      ::_exit(text.find("'the first'") != std::string::npos ? 0 : 2);
    }
    ::_exit(3);
  });
  CHECK(second.join() == 0);
  tracer.reset();
  Forked third([] { Tracer allowed; });
  CHECK(third.join() == 0);
}

TEST_CASE("trace: when the tracer is killed tracing ends by itself, and what was written for it is given back") {
  SimpleQueue<int> on, over, stop;
  Forked tracer([&] {
    Tracer traces;
    on.put(1);
    SimpleQueue<int>().get();  // until it is killed
  });
  on.get();
  Forked traced([&] {
    write_span("the first one");
    on.put(1);
    while (trace::is_on()) write_span("more");
    over.put(1);
    stop.get();  // asleep: the buffer goes back
  });
  on.get();
  CHECK(trace_blocks() >= 1);  // this process is traced too, where it used a queue
  ::kill(tracer.pid(), SIGKILL);
  tracer.join();
  over.get();
  CHECK_FALSE(trace::is_on());
  while (trace_blocks() > 0) trace::let_go();
  // And another one can begin.
  {
    Tracer next;
  }
  stop.put(1);
  CHECK(traced.join() == 0);
}

TEST_CASE("trace: a process that goes on after the trace gives its buffer back when it sleeps next") {
  SimpleQueue<int> ready, go, stop;
  Forked child([&] {
    write_span("traced");
    ready.put(1);
    go.get();
    stop.get();
  });
  ready.get();
  CHECK(trace_blocks() == 0);
  {
    Tracer tracer;
    Forked other([&] {
      write_span("traced");
      ready.put(1);
      stop.get();
    });
    ready.get();
    CHECK(trace_blocks() == 1);
    tracer.finish([](auto&, auto&) {});
    stop.put(1);
    CHECK(other.join() == 0);
  }
  Session::current().reclaim_all();
  CHECK(trace_blocks() == 0);
  go.put(1);
  stop.put(1);
  CHECK(child.join() == 0);
}

TEST_CASE("trace: a forked child of a traced process writes into a buffer of its own") {
  Collected all;
  Tracer tracer;
  Forked parent([] {
    write_span("parent before");
    const pid_t child = ::fork();
    if (child == 0) {
      write_span("child");
      SessionCore::current().leave();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    write_span("parent after");
    ::_exit(status == 0 ? 0 : 1);
  });
  CHECK(parent.join() == 0);
  tracer.finish(all.visitor());
  CHECK(all.of(parent.pid(), TraceKind::kSpan).size() == 2);
  REQUIRE(all.events.size() == 3);
  const auto child =
      std::find_if(all.events.begin(), all.events.end(), [](auto& event) { return event.name == "child"; });
  REQUIRE(child != all.events.end());
  CHECK(child->pid != parent.pid());
  Session::current().reclaim_all();
}

TEST_CASE("trace: the switch tells until when it is valid") {
  const ProcessTag tag(3, 5);
  const std::uint64_t until = 100'000'000'000;
  const TraceSwitch word = TraceSwitch::make(tag, until);
  CHECK(word.tracer() == tag);
  CHECK_FALSE(word.is_over(until));
  CHECK_FALSE(word.is_over(0));
  CHECK(word.is_over(until + (2u << TraceSwitch::kUnitBits)));
  CHECK_FALSE(TraceSwitch());
}
