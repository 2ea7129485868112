// How a process ended that ran one function.
#pragma once

#include <shoal/runtime/failure.h>
#include <shoal/runtime/spawn.h>

#include <cstdlib>

#include "tests/support/catch.h"

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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // which reports crashes itself, and then exits
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace shoal
