// Private memory that is refused: ipc_test replaces operator new, in refused_memory.cpp.
#pragma once

// The sanitizers have allocators of their own, and want all of operator new or none.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SHOAL_TEST_REFUSES_MEMORY 1
#endif

#include <new>

namespace shoal::test {

/// This thread's allocations until one is refused, that one counted; 0: none is.
extern thread_local int until_refused;

/// Runs `body`, whose nth allocation is refused. False if it makes fewer.
template <class Body>
bool refuse(int nth, Body&& body) {
  until_refused = nth;
  try {
    body();
  } catch (const std::bad_alloc&) {
  }
  const bool refused = until_refused == 0;
  until_refused = 0;
  return refused;
}

}  // namespace shoal::test
