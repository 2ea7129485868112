#include <shoal/ipc/session.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <signal.h>
#include <unistd.h>

#include <set>
#include <string>

#include "tests/runtime/start/methods.h"
#include "tests/support/guard.h"
#include "tests/support/snapshot.h"

namespace shoal {
namespace {

TEST_CASE("leaks: five hundred starts and joins leave nothing, each way a child can end") {
  FOR_EACH_METHOD(method);
  const auto before = test::take_snapshot();
  const auto slots = Session::current().free_slots();
  for (int i = 0; i < 170 * test::test_scale(); ++i) {
    Process process(
        {.start_method = method, .grace_period = std::chrono::milliseconds(50)},
        [](int way, const std::string& big) {
          switch (way) {
            case 0:
              return big;
            case 1:
              throw std::runtime_error(big);
            case 2:
              ::_exit(2);
            case 3:
              ::raise(SIGKILL);
          }
          return std::string();
        },
        i % 4, std::string(150, 'x'));
    process.start();
    if (i % 8 < 7) process.join();
  }
  const auto leaks = test::find_leaks(before, test::take_snapshot(), {});
  for (const auto& leak : leaks) UNSCOPED_INFO(leak);
  CHECK(leaks.empty());
  CHECK(Session::current().free_slots() == slots);
}

}  // namespace
}  // namespace shoal
