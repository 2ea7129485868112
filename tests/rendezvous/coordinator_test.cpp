#include <shoal/internal/workers/rendezvous/coordinator.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace shoal::rendezvous {
namespace {

using Answers = std::vector<Coordinator::Answer>;

/// A coordinator whose store is with "a", and a clock.
struct Run {
  explicit Run(const CoordinatorSettings& settings) : coordinator(settings, "a", 0) {}

  Answers say(const std::string& member, const std::string& text) {
    coordinator.receive(member, text, now);
    return take();
  }
  Answers join(const std::string& member, int ranks = 2, int wish = -1) {
    return say(member, "join " + std::to_string(ranks) + " " + std::to_string(wish) + " 2" + std::to_string(ranks) +
                           " host-" + member);
  }
  Answers wait(double seconds) {
    // In small steps, as it is in life; everyone who is there says so.
    for (double end = now + seconds; now < end; now += 0.5) {
      for (const auto& member : coordinator.members())
        if (std::find(silent.begin(), silent.end(), member) == silent.end()) coordinator.note_alive(member, now);
      coordinator.tick(now);
    }
    return take();
  }
  Answers take() {
    Answers answers = coordinator.take_answers();
    std::sort(answers.begin(), answers.end());
    return answers;
  }

  double now = 0;
  std::vector<std::string> silent;
  Coordinator coordinator;
};

TEST_CASE("coordinator: with a fixed number of hosts the round forms when the last has come") {
  Run run({.least = 2, .most = 2});
  CHECK(run.join("b", 3).empty());
  CHECK(run.wait(100).empty());
  // number, node, nodes, first rank, ranks, restarts; port and host of the first node
  CHECK(run.join("a", 2) == Answers{{"a", "round 0 1 2 3 5 0 23 host-b"}, {"b", "round 0 0 2 0 5 0 23 host-b"}});
  CHECK(run.say("a", "success 0").empty());
  CHECK(run.say("b", "success 0") == Answers{{"a", "finished"}, {"b", "finished"}});
  CHECK(run.coordinator.is_over());
}

TEST_CASE("coordinator: hosts get the numbers that they wish") {
  Run run({.least = 3, .most = 3});
  run.join("c", 1);
  run.join("b", 1, 1);
  CHECK(run.join("a", 1, 0) == Answers{{"a", "round 0 0 3 0 3 0 21 host-a"},
                                       {"b", "round 0 1 3 1 3 0 21 host-a"},
                                       {"c", "round 0 2 3 2 3 0 21 host-a"}});
}

TEST_CASE("coordinator: an elastic run waits a while for more than it needs") {
  Run run({.least = 1, .most = 3, .last_call = 10});
  CHECK(run.join("a").empty());
  CHECK(run.wait(9).empty());
  CHECK(run.wait(3) == Answers{{"a", "round 0 0 1 0 2 0 22 host-a"}});
}

TEST_CASE("coordinator: a failure starts all again, as often as allowed, and counts once") {
  Run run({.least = 2, .most = 2, .max_restarts = 1});
  run.join("a");
  run.join("b");
  CHECK(run.say("b", "failure 0 rank 3 died") == Answers{{"a", "restart rank 3 died"}, {"b", "restart rank 3 died"}});
  CHECK(run.say("a", "failure 0 its consequence").empty());
  CHECK(run.join("a").empty());
  CHECK(run.join("b") == Answers{{"a", "round 1 0 2 0 4 1 22 host-a"}, {"b", "round 1 1 2 2 4 1 22 host-a"}});
  CHECK(run.say("a", "success 0").empty());  // of the round before
  CHECK(run.say("a", "failure 1 again") == Answers{{"a", "failed again"}, {"b", "failed again"}});
  CHECK(run.join("b") == Answers{{"b", "failed the run is over"}});
}

TEST_CASE("coordinator: hosts whose ranks take their time to end are waited for, whatever join_timeout is") {
  Run run({.least = 2, .most = 2, .max_restarts = 1, .join_timeout = 10});
  run.join("a");
  run.join("b");
  run.say("b", "failure 0 rank 3 died");
  CHECK(run.wait(25).empty());
  CHECK(run.join("a").empty());
  CHECK(run.wait(5).empty());
  CHECK(run.join("b").size() == 2);  // the next round
  CHECK_FALSE(run.coordinator.is_over());
}

TEST_CASE("coordinator: a host that joins an elastic run is let in by a start that counts as no restart") {
  Run run({.least = 1, .most = 2, .max_restarts = 0, .last_call = 0});
  CHECK(run.join("a").size() == 1);
  CHECK(run.join("b") == Answers{{"a", "restart a host has joined"}});
  CHECK(run.join("a") == Answers{{"a", "round 1 0 2 0 4 0 22 host-a"}, {"b", "round 1 1 2 2 4 0 22 host-a"}});
  // One too many waits, and comes in when another leaves.
  CHECK(run.join("c").empty());
  CHECK(run.say("b", "leave it was stopped") == Answers{{"a", "restart a host has left: it was stopped"}});
  CHECK(run.join("a") == Answers{{"a", "round 2 0 2 0 4 0 22 host-a"}, {"c", "round 2 1 2 2 4 0 22 host-a"}});
}

TEST_CASE(
    "coordinator: a host that leaves a run which cannot be smaller ends it, or is waited for if restarts are left") {
  SECTION("none") {
    Run run({.least = 2, .most = 2});
    run.join("a");
    run.join("b");
    CHECK(run.say("b", "leave it was killed") ==
          Answers{{"a", "failed a host has left: it was killed. 1 of at least 2 is here"}});
  }
  SECTION("one") {
    Run run({.least = 2, .most = 2, .max_restarts = 1, .join_timeout = 60});
    run.join("a");
    run.join("b");
    CHECK(run.say("b", "leave it was killed") == Answers{{"a", "restart a host has left: it was killed"}});
    CHECK(run.join("a").empty());
    SECTION("in vain") { CHECK(run.wait(70) == Answers{{"a", "failed only 1 of at least 2 hosts came within 60 s"}}); }
    SECTION("not in vain") {
      CHECK(run.join("c") == Answers{{"a", "round 1 0 2 0 4 1 22 host-a"}, {"c", "round 1 1 2 2 4 1 22 host-a"}});
    }
  }
}

TEST_CASE("coordinator: a host that falls silent has left") {
  Run run({.least = 1, .most = 2, .last_call = 100, .dead_after = 5});
  run.join("a");
  run.join("b");
  CHECK(run.wait(20).empty());
  run.silent = {"b"};
  CHECK(run.wait(10) == Answers{{"a", "restart a host has left: nothing was heard of it for 5 s"}});
  CHECK(run.join("a") == Answers{{"a", "round 1 0 1 0 2 0 22 host-a"}});
}

TEST_CASE("coordinator: with the store's own host the run ends") {
  Run run({.least = 1, .most = 3, .max_restarts = 5, .last_call = 0});
  run.join("a");
  run.join("b");
  run.join("a");
  CHECK(run.say("a", "leave stopped") ==
        Answers{{"b", "failed the launcher at the rendezvous's endpoint has left: stopped"}});
}

TEST_CASE("coordinator: a launcher that goes after its ranks have succeeded breaks nothing") {
  Run run({.least = 2, .most = 2});
  run.join("a");
  run.join("b");
  run.say("b", "success 0");
  CHECK(run.say("b", "leave gone").empty());
  CHECK(run.say("a", "success 0") == Answers{{"a", "finished"}});
}

TEST_CASE("coordinator: words that mean nothing, and members that never joined, change nothing") {
  Run run({.least = 1, .most = 1});
  CHECK(run.say("x", "success 0").empty());
  CHECK(run.say("x", "leave").empty());
  CHECK(run.join("a").size() == 1);
  CHECK(run.say("a", "dance").empty());
  CHECK(run.say("a", "success nonsense").empty());
  CHECK_FALSE(run.coordinator.is_over());
}

}  // namespace
}  // namespace shoal::rendezvous
