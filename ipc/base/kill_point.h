// Marked places at which a test can kill, stop or delay the process.
#pragma once

#include <atomic>

namespace shoal {

/// Ends the calling process with SIGKILL the next time it passes the kill point of this name
/// (after `skip` passes; a name that ends in * means all that begin so). For tests; or SHOAL_KILL_AT=label[:skip].
void kill_at(const char* label, int skip = 0);

/// Like kill_at(), with SIGSTOP: the process stays there until it gets SIGCONT. Replaces a kill_at().
void stop_at(const char* label, int skip = 0);

/// How long and how often delay_at() stops a thread.
struct PointDelays {
  unsigned mean = 60;   // us; most stops are shorter, a few take up to 20 ms
  unsigned one_in = 8;  // passes, on average, for one stop
  unsigned seed = 1;    // of what each pass draws
};

/// From now on threads of this process that pass a kill point of this name sleep there now and then for a
/// random time. A name that ends in * means all that begin so. For tests, together with kill_at() or not; also taken
/// from the environment as SHOAL_DELAY_AT=label[:mean[:one_in[:seed]]]. Called while no other thread passes one.
void delay_at(const char* label, const PointDelays& delays = {});

namespace kill_points {
extern std::atomic<bool> armed;
void pass(const char* label) noexcept;
/// How many stops this process has made.
unsigned long delays_made() noexcept;
}  // namespace kill_points

}  // namespace shoal

/// One relaxed load when nothing is armed.
#define SHOAL_KILL_POINT(label)                                                                         \
  do {                                                                                                  \
    /* relaxed: a test arms it in this very process before it matters */                                \
    if (::shoal::kill_points::armed.load(std::memory_order_relaxed)) ::shoal::kill_points::pass(label); \
  } while (false)
