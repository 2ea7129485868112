#include <shoal/internal/runtime/cpu/cpu_share.h>

#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/catch.h"

namespace shoal {
namespace {

TEST_CASE("cpu share: the CPUs are divided, but nobody gets none") {
  ::unsetenv("OMP_NUM_THREADS");
  CHECK(thread_share(1, 0) == usable_cpus());
  CHECK(thread_share(2, 0) == std::max(1, usable_cpus() / 2));
  CHECK(thread_share(1000, 0) == 1);
}

TEST_CASE("cpu share: what is asked for counts, then what the user has set") {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  CHECK(thread_share(2, 0) == 0);
  CHECK(thread_share(2, 5) == 5);
  ::unsetenv("OMP_NUM_THREADS");
}

TEST_CASE("cpu share: CPUs that this process may not run on do not count") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cpus() == 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace shoal
