#include <shoal/internal/ipc/process/at_fork.h>
#include <shoal/ipc/session.h>

#include <stdexcept>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;

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

}  // namespace

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
