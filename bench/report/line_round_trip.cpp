#include "bench/report/line_round_trip.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace shoal::bench {
namespace {

constexpr int kTrips = 500, kSamples = 20;

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
void answer(Line& line) {
  for (int next = 1; next < 2 * kTrips * kSamples; next += 2) {
    while (line.word.load(std::memory_order_acquire) != next) continue;
    line.word.store(next + 1, std::memory_order_release);
  }
}

double median_trip(Line& line) {
  std::array<double, kSamples> samples{};
  int next = 1;
  for (double& sample : samples) {
    const auto from = std::chrono::steady_clock::now();
    for (int trip = 0; trip < kTrips; ++trip, next += 2) {
      line.word.store(next, std::memory_order_release);
      while (line.word.load(std::memory_order_acquire) != next + 1) continue;
    }
    sample = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - from).count() / kTrips;
  }
  std::ranges::nth_element(samples, samples.begin() + kSamples / 2);
  return samples[kSamples / 2];
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
  double trip = 0;
  std::thread other([&, last] {
    bind_thread(last);
    answer(line);
  });
  std::thread own([&, first] {
    bind_thread(first);
    trip = median_trip(line);
  });
  own.join();
  other.join();
  return trip;
}

}  // namespace shoal::bench
