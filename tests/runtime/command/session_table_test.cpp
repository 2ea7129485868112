#include <shoal/internal/runtime/command/look/session_table.h>

#include <shoal/internal/ipc/text/utf8_fit.h>
#include <shoal/internal/runtime/command/look/session_json.h>
#include <shoal/internal/runtime/command/subcommand.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/catch.h"

using namespace shoal;
using namespace shoal::command;

namespace {

bool is_near(double value, double expected) { return std::abs(value - expected) < 1e-6; }

constexpr std::uint64_t kSecond = 1'000'000'000;

SeenProcess process(std::uint32_t slot, pid_t pid, const std::string& name) {
  SeenProcess process{};
  process.slot = slot;
  process.generation = 1;
  process.pid = pid;
  process.rank = -1;
  process.name = name;
  process.state = SeenProcess::State::kAlive;
  process.usage.found = true;
  process.usage.state = 'S';
  return process;
}

/// A root with two children, one of which waits, and a queue.
SessionView example() {
  SessionView view{};
  view.time = 100 * kSecond;
  view.root = 10;
  view.complete = true;
  view.processes = {process(0, 10, "root"), process(1, 11, "train 0"), process(2, 12, "train 1")};
  view.processes[1].parent = view.processes[2].parent = 0;
  view.processes[1].rank = 0;
  view.processes[1].label = "epoch 3";
  view.processes[1].held_bytes = 3 << 20;
  view.processes[2].waits = {{2, 12, "get", 4096, view.time - 3 * kSecond}};
  SeenQueue queue{};
  queue.block = 4096;
  queue.name = "batches";
  queue.capacity = 8;
  queue.depth = 4;
  queue.put = 104;
  queue.got = 100;
  queue.bytes = 2048;
  queue.holders = {0, 1, 2};
  queue.waits = view.processes[2].waits;
  SeenQueue channel{};
  channel.block = 8192;
  channel.kind = SeenQueue::Kind::kChannel;
  channel.name = "shoal: channel";
  channel.capacity = 2;
  view.queues = {queue, channel};
  view.locks = {{9000, true, 1, 2, {{2, 12, "lock", 9000, view.time - kSecond / 2}}}};
  view.heap.bytes = 5 << 20;
  view.heap.allowed_bytes = 1 << 30;
  view.heap.allowed_by = "the cgroup's memory limit";
  return view;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

int length(const std::string& text) {
  return int(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

TEST_CASE("top: the table has processes as a tree, queues with who waits, locks, and the heap") {
  const std::string text = joined(to_table(example(), {}, {.width = 120}));
  CHECK_THAT(text, ContainsSubstring("session of process 10   3 processes, 1 queue"));
  CHECK_THAT(text, ContainsSubstring("heap  5.0M in use"));
  CHECK_THAT(text, ContainsSubstring("budget 1.0G (the cgroup's memory limit)"));
  CHECK_THAT(text, ContainsSubstring("10  root"));
  CHECK_THAT(text, ContainsSubstring("11  ├─ train 0"));
  CHECK_THAT(text, ContainsSubstring("12  └─ train 1  get batches 3.0s"));
  CHECK_THAT(text, ContainsSubstring("epoch 3"));
  CHECK_THAT(text, ContainsSubstring("4/8"));
  CHECK_THAT(text, ContainsSubstring("####...."));
  CHECK_THAT(text, ContainsSubstring("root, train 0, train 1  get: train 1 3.0s"));
  CHECK_THAT(joined(to_table(example(), {}, {.width = 100})), !ContainsSubstring("root, train 0"));
  CHECK_THAT(text, ContainsSubstring("r@2328  train 0  train 1 500ms"));
  CHECK_THAT(text, !ContainsSubstring("shoal: channel"));
  CHECK_THAT(joined(to_table(example(), {}, {.width = 120, .channels = true})), ContainsSubstring("shoal: channel"));
}

TEST_CASE("top: with PSS each process's own memory is shown, and what all cost together") {
  SessionView view = example();
  for (SeenProcess& each : view.processes) {
    each.usage.private_bytes = 5 << 20;
    each.usage.pss_bytes = 7 << 20;
  }
  const std::string text = joined(to_table(view, {}, {.width = 120, .pss = true}));
  CHECK_THAT(text, ContainsSubstring("PRIVATE"));
  CHECK_THAT(text, ContainsSubstring("5.0M  7.0M  epoch 3"));
  CHECK_THAT(text, ContainsSubstring("15M   21M"));
  CHECK_THAT(joined(to_table(view, {}, {.width = 120})), !ContainsSubstring("PRIVATE"));
}

TEST_CASE("top: no line is longer than the terminal is wide, and no table higher") {
  SessionView view = example();
  for (std::uint32_t i = 3; i < 60; ++i) {
    view.processes.push_back(process(i, pid_t(100 + i), "worker with a name " + std::to_string(i)));
    view.processes.back().label = std::string(50, 'l');
  }
  for (const int width : {20, 40, 60, 80, 100, 200})
    for (const int height : {0, 4, 10, 24, 50}) {
      CAPTURE(width, height);
      const auto lines = to_table(view, {}, {.width = width, .height = height});
      for (const std::string& line : lines) CHECK(length(line) <= width);
      if (height > 0) CHECK(int(lines.size()) <= height);
    }
  CHECK_THAT(joined(to_table(view, {}, {.width = 80, .height = 24})), ContainsSubstring("more"));
  view.queues[0].holders = {0, 1, 2, 3, 4};
  CHECK_THAT(joined(to_table(view, {}, {.width = 120})), ContainsSubstring("root, train 0, train 1 +2  get"));
}

TEST_CASE("top: what other processes write into names cannot reach the terminal") {
  SessionView view = example();
  view.processes[1].label = "\033[2Jgone \xff\xc2\x9b \xe2\x82 ok \u00e4";
  view.processes[1].name = "a\nb";
  const std::string text = joined(to_table(view, {}, {.width = 120}));
  CHECK_THAT(text, ContainsSubstring("?[2Jgone ??? ?? ok \u00e4"));
  CHECK_THAT(text, ContainsSubstring("a?b"));
  CHECK_THAT(text, !ContainsSubstring("\033"));
}

TEST_CASE("top: a tree that bites its tail shows each process once") {
  SessionView view = example();
  view.processes[0].parent = 2;
  view.processes[2].parent = 0;
  const std::string text = joined(to_table(view, {}, {.width = 120}));
  CHECK(text.find("train 0") != std::string::npos);
  for (const char* pid : {"\n   10  ", "\n   11  ", "\n   12  "}) {
    CAPTURE(pid, text);
    const auto at = text.find(std::string(pid).substr(4));
    CHECK(at != std::string::npos);
  }
}

TEST_CASE("top: one that ended and left nothing is not shown, one that left memory is") {
  SessionView view = example();
  view.processes[2].state = SeenProcess::State::kEnded;
  view.processes[2].waits.clear();
  CHECK_THAT(joined(to_table(view, {}, {.width = 120})), !ContainsSubstring("ended  "));
  view.processes[2].held_bytes = 7;
  CHECK_THAT(joined(to_table(view, {}, {.width = 120})), ContainsSubstring("train 1  ended"));
}

TEST_CASE("top: rates are differences of two looks, and none where it is another process or queue by now") {
  SessionView before = example(), now = example();
  now.time += 2 * kSecond;
  now.processes[1].usage.cpu_ns = before.processes[1].usage.cpu_ns + kSecond;
  now.queues[0].put += 50;
  now.queues[0].got += 40;
  const SessionRates rates(before, now);
  CHECK(is_near(rates.seconds(), 2));
  CHECK(is_near(*rates.cpu_percent(now.processes[1]), 50));
  CHECK(is_near(*rates.cpu_percent(now.processes[2]), 0));
  CHECK(is_near(rates.messages(now.queues[0])->in, 25));
  CHECK(is_near(rates.messages(now.queues[0])->out, 20));
  now.processes[1].generation = 2;
  now.queues[0].put = 3;
  const SessionRates others(before, now);
  CHECK_FALSE(others.cpu_percent(now.processes[1]));
  CHECK_FALSE(others.messages(now.queues[0]));
  CHECK_FALSE(SessionRates().messages(now.queues[0]));
}

TEST_CASE("top: the JSON is one line, parses, and has what the table has") {
  SessionView before = example(), view = example();
  view.time += kSecond;
  view.queues[0].put += 5;
  view.processes[1].label = "bad \xff utf \"quoted\"";
  const std::string text = to_json(view, SessionRates(before, view));
  CHECK(text.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(text);
  CHECK(json["schema"] == 1);
  CHECK(json["root"] == 10);
  REQUIRE(json["processes"].size() == 3);
  CHECK(json["processes"][0]["parent"].is_null());
  CHECK(json["processes"][1]["parent"] == 10);
  CHECK(json["processes"][1]["rank"] == 0);
  CHECK(json["processes"][2]["rank"].is_null());
  CHECK(json["processes"][2]["waits"][0]["for"] == "get");
  CHECK(is_near(json["processes"][2]["waits"][0]["seconds"], 4));
  CHECK(json["processes"][2]["waits"][0]["block"] == json["queues"][0]["block"]);
  CHECK(is_near(json["queues"][0]["put_per_second"], 5));
  CHECK(json["queues"][0]["holders"] == nlohmann::json({10, 11, 12}));
  CHECK(json["queues"][0]["byte_capacity"].is_null());
  CHECK(json["queues"][1]["put_per_second"] == 0);
  CHECK(json["locks"][0]["holder"] == 11);
  CHECK(json["locks"][0]["waits"][0]["pid"] == 12);
  CHECK(json["heap"]["allowed_by"] == "the cgroup's memory limit");
}

TEST_CASE("top: times for people are short") {
  CHECK(short_seconds(0.08) == "80ms");
  CHECK(short_seconds(3.21) == "3.2s");
  CHECK(short_seconds(725) == "12m05s");
  CHECK(short_seconds(12'000) == "3h20m");
}

TEST_CASE("trace: a time is given with its unit, and what is none is refused by name") {
  using namespace std::chrono_literals;
  CHECK(parse_duration("5s", "--for") == 5s);
  CHECK(parse_duration("1.5", "--for") == 1500ms);
  CHECK(parse_duration("200ms", "--for") == 200ms);
  CHECK(parse_duration("2m", "--for") == 2min);
  for (const char* bad : {"", "s", "0", "-1s", "5 parsecs", "nan", "inf", "1e9", "999999s"})
    CHECK_THROWS_WITH(parse_duration(bad, "--for"), ContainsSubstring("--for is '" + std::string(bad) + "'"));
}
