// The leak guard: compares descriptors, mappings, shared heap bytes and children before and after every test case. What
// is left over is printed as `LEAK 'test': ...` and fails the run. Nothing to call: it is a listener of every test
// program.
#pragma once

#include <sys/types.h>

#include <string>

namespace shoal::test {

/// Called once, before the first test case. What a process sets up at first use and keeps (its session, the fork
/// server) is set up here, so that it is no leak of whichever test comes first. By default (main.cpp) this starts the
/// fork server where the program is linked with runtime; a test program that needs another one defines it in a file of
/// its own.
void warm_up();

/// Called before each test case, before the first snapshot: sets up what a case of this name will use first and the
/// process then keeps, for good. By default nothing; a test program that needs it defines it in a file of its own.
void warm_up_for(const std::string& test);

/// Says that a child may outlive the test case that started it, as the fork server does.
void allow_child(pid_t pid);

/// How many test cases have leaked so far.
int leaking_tests();

/// How many test cases have ended so far.
int ended_tests();

/// How much longer than usual a campaign (stress, kill, seeds) shall be: SHOAL_TEST_SCALE, 1 unless set.
int test_scale();

}  // namespace shoal::test
