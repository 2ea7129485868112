// Ends a test case that hangs, after saying where every process of it was.
//
// A timer whose signal is handled in the test's process, not a thread: a second thread would forbid the fork start
// method. The timer is not inherited by forked children.
#pragma once

#include <string>

namespace shoal::test {

/// Starts the clock: SHOAL_TEST_TIMEOUT seconds (60 unless set) times SHOAL_TEST_SCALE. When it runs out and the case has
/// hardly computed meanwhile, nor waited for processes that have, or for the fourth time, the state and the stacks of this process and of all below it are printed, those below are killed, and the process aborts.
void start_watchdog(const std::string& test_name);
void stop_watchdog();

}  // namespace shoal::test
