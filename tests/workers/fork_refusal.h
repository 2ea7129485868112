// Whether a case may still fork this process.
#pragma once

#include <shoal/runtime/hooks.h>

#include "tests/support/catch.h"

namespace shoal::test {

/// Says so where a case has to leave StartMethod::fork out. On a machine with a GPU libtorch starts CUDA in a process
/// that seeds a generator or runs a backward pass (docs/launching.md), so cases that fork depend on the cases before
/// them, unless each has a process of its own, as under ctest.
inline bool fork_is_refused() {
  const char* why = hooks::fork_refusal();
  if (why) WARN("SKIPPED: StartMethod::fork: " << why);
  return why != nullptr;
}

}  // namespace shoal::test
