// Cache lines that are asked for before they are needed.
#pragma once

namespace shoal {

/// Asks for the line of `place`, to be written: also if this core has it, but shares it with others. Nothing is read, and
/// nothing happens where there is no memory.
inline void prefetch_to_write(const void* place) {
#if defined(__x86_64__)
  // The instruction itself: the compiler knows it only for CPUs that the build does not ask for, and asks to read otherwise.
  // Others take it for a nop.
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(place)));
#else
  __builtin_prefetch(place, 1);
  asm volatile("");
#endif
}

/// Asks for the line of `place`, to be read, into the second cache: the nearest one has what is worked on now.
inline void prefetch_to_second_cache(const void* place) {
  __builtin_prefetch(place, 0, 2);
  // For GCC a function that does nothing but the line above has no effect, and it drops calls of it.
  asm volatile("");
}

}  // namespace shoal
