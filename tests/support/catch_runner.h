// Runs the Catch2 tests linked into this program, each watched by the leak guard and the watchdog.
#pragma once

namespace shoal::test {

/// Returns the exit code: not zero where a test failed or leaked.
int run_catch(int argc, char** argv);

}  // namespace shoal::test
