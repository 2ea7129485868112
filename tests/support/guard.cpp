// Version 2 declares its listeners only on request.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "tests/support/guard.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/snapshot.h"
#include "tests/support/watchdog.h"

namespace shoal::test {
namespace {

std::set<pid_t> allowed_children;
int leaking = 0, ended = 0;

// Children that were killed but are not gone yet, and blocks that another process gives back a moment later, are no
// leaks.
constexpr auto kGrace = std::chrono::seconds(2);

std::vector<std::string> find_lasting_leaks(const Snapshot& before) {
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  while (true) {
    const auto leaks = find_leaks(before, take_snapshot(), allowed_children);
    if (leaks.empty() || std::chrono::steady_clock::now() > deadline) return leaks;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

class LeakGuard : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    if (!warmed_up_) {
      start_watchdog("warm_up before: " + test.name);
      warm_up();
      take_snapshot();  // its own first use opens what stays open (the locale, for one)
      warmed_up_ = true;
    }
    name_ = test.name;
    start_watchdog(name_);
    warm_up_for(name_);
    before_ = take_snapshot();
  }

  void testCaseEnded(const Catch::TestCaseStats&) override {
    const auto leaks = find_lasting_leaks(before_);
    stop_watchdog();
    ++ended;
    for (const auto& leak : leaks) {
      std::fprintf(stderr, "LEAK '%s': %s\n", name_.c_str(), leak.c_str());
    }
    if (leaks.empty()) return;
    ++leaking;
    kill_new_children();
  }

 private:
  // A leaked child would outlive the run, and whoever reads its output would wait for it.
  void kill_new_children() {
    for (const auto& [pid, state] : take_snapshot().children) {
      if (before_.children.count(pid) == 0 && allowed_children.count(pid) == 0) kill(pid, SIGKILL);
    }
  }

  bool warmed_up_ = false;
  std::string name_;
  Snapshot before_;
};

CATCH_REGISTER_LISTENER(LeakGuard)

}  // namespace

void allow_child(pid_t pid) { allowed_children.insert(pid); }

int leaking_tests() { return leaking; }

int ended_tests() { return ended; }

int test_scale() {
  const char* text = std::getenv("SHOAL_TEST_SCALE");
  const int scale = text == nullptr ? 1 : std::atoi(text);
  if (scale <= 0)
    throw std::invalid_argument(fmt::format("SHOAL_TEST_SCALE={}: give a whole number, at least 1", text));
  return scale;
}

}  // namespace shoal::test
