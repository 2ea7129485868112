// How a process ended that ran one function.
#pragma once

#include <shoal/runtime/failure.h>
#include <shoal/runtime/spawn.h>

#include <cstdlib>

#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

namespace shoal {

/// The failure of one process that runs the function.
template <class F, class... Arguments>
ProcessExited exit_of(StartMethod method, F function, Arguments... arguments) {
  try {
    spawn({.start_method = method}, function, arguments...);
  } catch (const ProcessExited& failure) {
    return failure;
  }
  FAIL("nothing was thrown");
  std::abort();
}

using test::kSanitized;  // a sanitizer reports crashes itself, and then exits

}  // namespace shoal
