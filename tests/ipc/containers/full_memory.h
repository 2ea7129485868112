// A session without memory to spare.
#pragma once

#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shoal::test {

/// What the session may use, for as long as this object lives.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes) { ::setenv("SHOAL_MEMORY_LIMIT", std::to_string(bytes).c_str(), 1); }
  MemoryLimit(const MemoryLimit&) = delete;
  ~MemoryLimit() { ::unsetenv("SHOAL_MEMORY_LIMIT"); }
};

/// Blocks of so many bytes, until there is no room for another one.
inline std::vector<Hold> all_blocks_of(std::size_t bytes) {
  std::vector<Hold> all;
  try {
    for (;;) all.push_back(allocate_shared(bytes));
  } catch (const OutOfSharedMemory&) {
    return all;
  }
}

}  // namespace shoal::test
