// main() of every test program.
#include "tests/support/catch_runner.h"
#include "tests/support/guard.h"

#ifdef SHOAL_TEST_WITH_RUNTIME
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/runtime/init.h>
#endif

// Weak: a test program that needs more has its own.
__attribute__((weak)) void shoal::test::warm_up() {
#ifdef SHOAL_TEST_WITH_RUNTIME
  allow_child(start_fork_server());
#endif
}

__attribute__((weak)) void shoal::test::warm_up_for(const std::string&) {}

int main(int argc, char** argv) {
#ifdef SHOAL_TEST_WITH_RUNTIME
  shoal::init(argc, argv);  // in a started child this runs the child's function and never returns
#endif
  return shoal::test::run_catch(argc, argv);
}
