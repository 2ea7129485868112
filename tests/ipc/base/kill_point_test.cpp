#include <shoal/internal/ipc/base/kill_point.h>

#include <shoal/ipc/heap.h>
#include <signal.h>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;

namespace {

void use_heap(int times) {
  for (int i = 0; i < times; ++i) allocate_shared(100);
}

void require_delays(bool expected) {
  if ((kill_points::delays_made() != 0) != expected) throw std::runtime_error("delays where none belong, or none");
}

}  // namespace

TEST_CASE("kill point: a process is delayed where it was said, and nowhere else") {
  CHECK(Forked([] {
          delay_at("heap.make_live.before_state", {.mean = 1, .one_in = 1});
          use_heap(3);
          if (kill_points::delays_made() != 3) throw std::runtime_error("not each pass");
        }).join() == 0);
  CHECK(Forked([] {
          delay_at("heap.*", {.mean = 1, .one_in = 4});
          use_heap(200);
          require_delays(true);
        }).join() == 0);
  CHECK(Forked([] {
          delay_at("ring.*", {.mean = 1, .one_in = 1});
          use_heap(200);
          require_delays(false);
        }).join() == 0);
}

TEST_CASE("kill point: delays and a kill are armed at once") {
  CHECK(Forked([] {
          delay_at("*", {.mean = 1, .one_in = 1});
          kill_at("heap.free.before_hint", 1);
          use_heap(1);
          require_delays(true);
          use_heap(1);
        }).join() == -SIGKILL);
}
