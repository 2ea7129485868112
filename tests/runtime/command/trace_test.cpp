#include <shoal/internal/runtime/command/look/chrome_trace.h>
#include <shoal/ipc/label.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/simple_queue.h>
#include <shoal/ipc/trace_span.h>
#include <shoal/runtime/process.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/runtime/command/shoal_program.h"
#include "tests/runtime/start/methods.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using namespace shoal::command;
using nlohmann::json;
using shoal::test::Forked;
using shoal::test::kShoal;
using shoal::test::ProgramResult;
using shoal::test::run_program;

namespace trace_test {

namespace {

bool is_near(double value, double expected) { return std::abs(value - expected) < 1e-6; }

TraceRecord record(TraceKind kind, std::uint64_t start, std::uint64_t end, const char* name, std::uint64_t link = 0) {
  TraceRecord record{start, end, 64, link, 5, kind, 7, {}};
  std::string(name).copy(record.name, sizeof record.name - 1);
  return record;
}

std::string written(const ChromeTrace& trace, const std::vector<TracedProcess>& processes) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* file = ::open_memstream(&text, &size);
  CHECK(trace.write(file, processes));
  std::fclose(file);
  const std::string result(text, size);
  ::free(text);
  return result;
}

std::vector<json> events_with(const json& trace, const std::string& key, const std::string& value) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event.value(key, "") == value) found.push_back(event);
  return found;
}

void run_named_step(Queue<int> queue) {
  for (int i = 0; i < 3; ++i) {
    TraceSpan span("step");
    queue.put(i);
  }
}

}  // namespace

TEST_CASE("trace: events come out as JSON that parses, in order, with arrows from put to get and from start to run") {
  int asked = 0;
  ChromeTrace trace([](std::uint64_t word) { return "get word " + std::to_string(word); },
                    [&](pid_t pid, std::uint32_t thread) {
                      ++asked;
                      return pid == 1 ? "th\"read " + std::to_string(thread) : std::string();
                    });
  const TracedProcess first{1, "fi\"rst\n", 0}, second{2, "second", 3};
  trace.add(second, record(TraceKind::kGet, 3000, 9000, "qu\\eue", 42));
  trace.add(first, record(TraceKind::kPut, 5000, 6001, "qu\\eue", 42));
  trace.add(first, record(TraceKind::kPut, 7000, 7000, "queue", 43));  // nobody got it
  trace.add(first, record(TraceKind::kSpan, 1000, 10'000, "step"));
  trace.add(second, record(TraceKind::kWait, 3500, 8000, ""));
  trace.add(first, record(TraceKind::kStart, 100, 200, "child", 2));
  trace.add(second, record(TraceKind::kRun, 150, 20'000, "child", 2));
  trace.add(first, record(TraceKind(99), 1, 2, "nonsense"));
  trace.add(first, record(TraceKind::kSpan, 20, 10, "backwards"));
  trace.add_open_wait(2, 7, "get never", 9500, 12'000);
  CHECK(trace.events() == 8);
  const json parsed = json::parse(written(trace, {first, second}));
  CHECK(parsed["otherData"]["lost_events"] == 3);
  CHECK(events_with(parsed, "ph", "M")[0]["args"]["name"] == "fi\"rst\n");
  const auto threads = events_with(parsed, "name", "thread_name");
  REQUIRE(threads.size() == 1);  // the other one had gone before it could be asked
  CHECK(threads[0]["args"]["name"] == "th\"read 7");
  CHECK(threads[0]["pid"] == 1);
  CHECK(threads[0]["tid"] == 7);
  CHECK(asked == 2);
  const auto complete = events_with(parsed, "ph", "X");
  REQUIRE(complete.size() == 8);
  double last = 0;
  for (const json& event : complete) {
    CHECK(event["ts"] >= last);
    CHECK(event["dur"] >= 0);
    last = event["ts"];
  }
  CHECK(is_near(events_with(parsed, "name", "put qu\\eue")[0]["dur"], 1.001));
  CHECK(events_with(parsed, "name", "put qu\\eue")[0]["args"]["bytes"] == 5);
  CHECK(events_with(parsed, "name", "wait: get word 64").size() == 1);
  CHECK(is_near(events_with(parsed, "name", "wait: get never")[0]["dur"], 2.5));
  const auto from = events_with(parsed, "ph", "s"), to = events_with(parsed, "ph", "f");
  REQUIRE(from.size() == 2);
  REQUIRE(to.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(from[i]["id"] == to[i]["id"]);
    CHECK(from[i]["ts"] <= to[i]["ts"]);
    CHECK(from[i]["pid"] == 1);
    CHECK(to[i]["pid"] == 2);
  }
}

TEST_CASE("trace: names that are no text come out as JSON that parses") {
  ChromeTrace trace([](std::uint64_t) { return std::string("get \xff\x01"); },
                    [](pid_t, std::uint32_t) { return std::string(); });
  const TracedProcess process{1, "\xc3", 0};  // half a character
  trace.add(process,
            record(TraceKind::kSpan, 1000, 2000, "a name cut within its \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"));
  trace.add(process, record(TraceKind::kWait, 3000, 4000, ""));
  const json parsed = json::parse(written(trace, {process}));
  CHECK(events_with(parsed, "ph", "M")[0]["args"]["name"] == "\xef\xbf\xbd");
  CHECK(events_with(parsed, "cat", "span")[0]["name"] ==
        "a name cut within its \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xef\xbf\xbd");
  CHECK(events_with(parsed, "cat", "wait")[0]["name"] == "wait: get \xef\xbf\xbd\x01");
}

TEST_CASE("trace: the program traces a running session, and top shows it") {
  Queue<int> queue({.name = "numbers"});
  SimpleQueue<int> stop;
  Forked worker([&] {
    set_label("busy");
    ::prctl(PR_SET_NAME, "name of thread");
    while (stop.empty()) {
      TraceSpan span("round");
      queue.put(1);
      queue.get();
      // Else the trace has a million events, whose JSON is read for half a minute under sanitizers.
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const std::string pid = std::to_string(worker.pid());
  const ProgramResult traced = run_program({kShoal, "trace", pid, "--for", "200ms", "-o", "-"});
  CHECK(traced.code == 0);
  const json trace = json::parse(traced.output);
  CHECK(events_with(trace, "name", "round").size() > 0);
  CHECK(events_with(trace, "name", "put numbers").size() > 0);
  CHECK(events_with(trace, "name", "get numbers").size() > 0);
  const auto threads = events_with(trace, "name", "thread_name");
  CHECK(std::any_of(threads.begin(), threads.end(), [&](auto& thread) {
    return thread["tid"] == worker.pid() && thread["args"]["name"] == "name of thread";
  }));
  CHECK_FALSE(trace::is_on());
  const ProgramResult look = run_program({kShoal, "top", pid, "--once", "--json"});
  CHECK(look.code == 0);
  const json view = json::parse(look.output);
  CHECK(view["root"] == ::getpid());
  const auto queues = view["queues"];
  CHECK(std::any_of(queues.begin(), queues.end(), [](auto& seen) { return seen["name"] == "numbers"; }));
  const auto processes = view["processes"];
  CHECK(std::any_of(processes.begin(), processes.end(),
                    [&](auto& seen) { return seen["pid"] == worker.pid() && seen["label"] == "busy"; }));
  const ProgramResult table = run_program({kShoal, "top", pid, "--once"});
  CHECK(table.code == 0);
  CHECK_THAT(table.output, ContainsSubstring("numbers") && ContainsSubstring("busy"));
  stop.put(1);
  CHECK(worker.join() == 0);
  Session::current().reclaim_all();  // the one who traced
}

TEST_CASE("trace: a bad time, a bad session and a bad option are one clear line and a code") {
  const ProgramResult nobody = run_program({kShoal, "trace", "1999999999"});
  CHECK(nobody.code == 1);
  CHECK(nobody.output.empty());
  CHECK(nobody.error == "shoal: there is no process 1999999999\n");
  const ProgramResult bad_time = run_program({kShoal, "trace", "--for", "ever"});
  CHECK(bad_time.code == 4);
  CHECK_THAT(bad_time.error, ContainsSubstring("--for is 'ever'"));
  CHECK(run_program({kShoal, "top", "--nonsense"}).code == 2);
  CHECK(run_program({kShoal, "top", "--interval", "0", "1"}).code == 4);
  CHECK(run_program({kShoal, "top", "no-such-session"}).code == 1);
}

TEST_CASE("trace: starts and runs of processes are events, with the arrow between them, by each method") {
  for (const StartMethod method : {StartMethod::forkserver, StartMethod::spawn, StartMethod::fork}) {
    CAPTURE(method_name(method));
    Queue<int> queue({.name = "numbers"});
    SimpleQueue<int> on, stop;
    ChromeTrace trace([](std::uint64_t) { return "something"; }, [](pid_t, std::uint32_t) { return "thread"; });
    Forked tracing([&] {
      Tracer tracer;
      on.put(1);
      bool last = false;
      while (!last) {
        last = !stop.empty();
        tracer.drain([&](const TracedProcess& process, const TraceRecord& record) { trace.add(process, record); });
      }
      tracer.finish([&](const TracedProcess& process, const TraceRecord& record) { trace.add(process, record); });
      const json parsed = json::parse(written(trace, tracer.processes()));
      const bool good =
          events_with(parsed, "name", "start worker").size() == 1 &&
          events_with(parsed, "name", "run worker").size() == 1 && events_with(parsed, "name", "step").size() == 3 &&
          events_with(parsed, "name", "put numbers").size() == 3 &&
          std::count_if(parsed["traceEvents"].begin(), parsed["traceEvents"].end(),
                        [](auto& event) { return event["ph"] == "s" && event["name"] == "process"; }) == 1;
      if (!good) std::fprintf(stderr, "%s\n", parsed.dump().c_str());
      ::_exit(good ? 0 : 2);
    });
    on.get();
    Process worker({.name = "worker", .start_method = method}, run_named_step, queue);
    worker.start();
    worker.join();
    stop.put(1);
    CHECK(tracing.join() == 0);
    Session::current().reclaim_all();
    trace::let_go();
  }
}

}  // namespace trace_test
