// The kernel's wait and wake on a 32-bit word in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace shoal {

/// Sleeps while `word` is `expected`, at most `timeout`. May return early for no reason. Works
/// between processes: the kernel knows the word by its page, not by its address.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds timeout) noexcept;

/// Wakes up to `count` sleepers.
void futex_wake(const std::atomic<std::uint32_t>& word, int count) noexcept;

}  // namespace shoal
