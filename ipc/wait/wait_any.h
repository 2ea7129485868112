// Sleeping on several event words at once.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>

#include <chrono>
#include <cstdint>
#include <span>

namespace shoal {

/// A word that was prepare()d, and what that returned.
struct PreparedEvent {
  EventWord* event;
  std::uint32_t prepared;
};

/// Sleeps until one of the words is notified or for `at_most`, unless one was notified since it was prepared. May
/// return early for no reason. If the kernel cannot wait for so many (128), or not for several at all (before 5.16, or
/// forbidden), it sleeps for a millisecond.
void sleep_on_any(std::span<const PreparedEvent> events, std::chrono::nanoseconds at_most) noexcept;

}  // namespace shoal
