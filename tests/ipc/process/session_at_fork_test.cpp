#include <pthread.h>
#include <shoal/internal/ipc/process/at_fork.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/session.h>

#include <stdexcept>
#include <string>

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

constexpr AtFork kFirst{
    .before =
        []() noexcept {
          steps += "first before, ";
          had_slot_before = bool(Session::current().self_if_known());
        },
    .in_parent = []() noexcept { steps += "first in parent, "; },
    .in_child =
        []() noexcept {
          steps += "first in child, ";
          has_slot_in_child = bool(Session::current().self_if_known());
        },
};
constexpr AtFork kSecond{
    .before = []() noexcept { steps += "second before, "; },
    .in_parent = []() noexcept { steps += "second in parent"; },
    .in_child = []() noexcept { steps += "second in child"; },
};

// What a handler of the program's own has in its hands.
Hold inherited;
bool drops = false;

}  // namespace

TEST_CASE("body: a handler of the program lets go", "[.]") {
  fresh::run([] {
    // Before the session's handlers: so it is called after them, with what they have locked.
    ::pthread_atfork(
        [] {
          if (!drops) return;
          inherited.release();
        },
        nullptr, nullptr);
    inherited = allocate_shared(100);
    Forked child([] {
      drops = true;
      Forked grandchild([] {});
      if (grandchild.join() != 0) throw std::runtime_error("the grandchild failed");
    });
    if (child.join() != 0) throw std::runtime_error("the child failed");
  });
}

TEST_CASE("session: the program's own handlers around a fork may let go of what they like") {
  FreshProcess process("body: a handler of the program lets go");
  CHECK(process.read_line().empty());
  CHECK(process.join() == 0);
}

TEST_CASE("session: around a fork each step is taken once, in order, and in the child after its slot is forgotten") {
  Session::current().self();
  at_fork(kFirst);
  at_fork(kSecond);
  at_fork(kSecond);
  steps.clear();
  Forked child([] {
    if (steps != "second before, first before, first in child, second in child" || has_slot_in_child)
      throw std::runtime_error(steps);
  });
  CHECK(steps == "second before, first before, first in parent, second in parent");
  CHECK(had_slot_before);
  CHECK(child.join() == 0);
}
