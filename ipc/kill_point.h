// Marked places at which a test can end the process.
#pragma once

#include <atomic>

namespace shoal {

/// Ends the calling process with SIGKILL the next time it passes the kill point of this name
/// (after `skip` passes). For tests; also taken from the environment as SHOAL_KILL_AT=label[:skip].
void kill_at(const char* label, int skip = 0);

namespace kill_points {
extern std::atomic<bool> armed;
void pass(const char* label) noexcept;
}  // namespace kill_points

}  // namespace shoal

/// One relaxed load when nothing is armed.
#define SHOAL_KILL_POINT(label)                                                                         \
  do {                                                                                                  \
    /* relaxed: a test arms it in this very process before it matters */                                \
    if (::shoal::kill_points::armed.load(std::memory_order_relaxed)) ::shoal::kill_points::pass(label); \
  } while (false)
