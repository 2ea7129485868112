#include "tests/ipc/heap/refused_memory.h"

#include <cstdlib>

#ifdef SHOAL_TEST_REFUSES_MEMORY

thread_local int shoal::test::until_refused = 0;

[[gnu::noinline]] void* operator new(std::size_t size) {
  using shoal::test::until_refused;
  if (until_refused > 0 && --until_refused == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif
