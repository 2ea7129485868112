// main() of every test program.
#include "tests/support/catch_runner.h"

#ifdef SHOAL_TEST_WITH_RUNTIME
#include <shoal/runtime/init.h>
#endif

int main(int argc, char** argv) {
#ifdef SHOAL_TEST_WITH_RUNTIME
  shoal::init(argc, argv);  // in a started child this runs the child's function and never returns
#endif
  return shoal::test::run_catch(argc, argv);
}
