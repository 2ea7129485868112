// Runs the Catch2 tests linked into this program, each watched by the leak guard and the watchdog.
#pragma once

namespace shoal::test {

/// Returns the exit code: not zero where a test failed or leaked, or if no test has the name asked for. With the arguments
/// `--write-ctest FILE LABEL [PROPERTIES]` it runs nothing, but writes a file that tells ctest of every test case, each with
/// these PROPERTIES, in ctest's words.
int run_catch(int argc, char** argv);

}  // namespace shoal::test
