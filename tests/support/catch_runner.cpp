// Version 2 of Catch2 is compiled here, once for all test programs.
#define CATCH_CONFIG_RUNNER
// Its signal handlers are inherited by forked children, where they would report a child's SIGTERM as the test's failure.
// Which test a signal ended is seen from ctest, which runs every test case in a process of its own.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include "tests/support/catch_runner.h"

#include "tests/support/catch.h"
#include "tests/support/guard.h"

namespace shoal::test {

int run_catch(int argc, char** argv) {
  const int code = Catch::Session().run(argc, argv);
  return code == 0 && leaking_tests() > 0 ? 1 : code;
}

}  // namespace shoal::test
