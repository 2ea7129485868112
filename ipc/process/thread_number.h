// Which thread of this process is calling.
#pragma once

#include <atomic>
#include <cstdint>

namespace shoal {

/// A number for each thread of this process that asks, from 1 on, never given twice. A forked child's only thread keeps
/// the number that it had in the parent: with the process's tag beside it, it is another owner all the same.
inline std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> last{0};
  thread_local const std::uint32_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;  // relaxed: a count
  return number;
}

}  // namespace shoal
