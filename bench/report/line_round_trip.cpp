#include "bench/report/line_round_trip.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace shoal::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTrips = 500, kSamples = 20, kLooksBetween = 1 << 14;
// Where both threads share one CPU, of which each trip takes two turns, all trips would take minutes.
constexpr std::chrono::milliseconds kLongest(200);

struct alignas(64) Line {
  std::atomic<int> word{0};
};

void bind_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);  // of the calling thread; if it is refused the kernel chooses
}

/// Odd words are for the other side, even ones come back.
void answer(Line& line, const std::atomic<bool>& over) {
  for (int next = 1; next < 2 * kTrips * kSamples; next += 2) {
    while (line.word.load(std::memory_order_acquire) != next)
      if (over.load(std::memory_order_relaxed)) return;  // relaxed: nothing else hangs on it
    line.word.store(next + 1, std::memory_order_release);
  }
}

/// False if it did not come before `end`.
bool comes(const Line& line, int word, Clock::time_point end) {
  for (int look = 1; line.word.load(std::memory_order_acquire) != word; ++look)
    if (look % kLooksBetween == 0 && Clock::now() >= end) return false;
  return true;
}

/// Of the samples that came to their end in time; nothing if none did.
std::optional<double> median_trip(Line& line) {
  std::vector<double> samples;
  const auto end = Clock::now() + kLongest;
  int next = 1;
  while (samples.size() < kSamples) {
    const auto from = Clock::now();
    int trip = 0;
    for (; trip < kTrips; ++trip, next += 2) {
      line.word.store(next, std::memory_order_release);
      if (!comes(line, next + 1, end)) break;
    }
    if (trip < kTrips) break;
    samples.push_back(std::chrono::duration<double, std::nano>(Clock::now() - from).count() / kTrips);
  }
  if (samples.empty()) return std::nullopt;
  const auto middle = samples.begin() + std::ptrdiff_t(samples.size() / 2);
  std::ranges::nth_element(samples, middle);
  return *middle;
}

}  // namespace

std::optional<double> line_round_trip() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  int first = -1, last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) {
      if (first < 0) first = cpu;
      last = cpu;
    }
  if (first == last) return std::nullopt;
  Line line;
  alignas(64) std::atomic<bool> over{false};
  std::optional<double> trip;
  std::thread other([&, last] {
    bind_thread(last);
    answer(line, over);
  });
  std::thread own([&, first] {
    bind_thread(first);
    trip = median_trip(line);
  });
  own.join();
  over.store(true, std::memory_order_relaxed);  // relaxed: as above
  other.join();
  return trip;
}

}  // namespace shoal::bench
