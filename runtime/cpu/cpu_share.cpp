#include <shoal/internal/runtime/cpu/cpu_share.h>

#include <shoal/runtime/current_process.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <ratio>
#include <thread>

namespace shoal {
namespace {

/// In a child the variable may be there because its parent set it for it: that is no wish of the user's.
bool user_has_set_threads() { return current_process().num_threads == 0 && std::getenv("OMP_NUM_THREADS"); }

/// This machine's, read once a second: that takes 70 us, the first time 1.5 ms, and a start from a spare 500. No lock,
/// since a process may be forked in the middle of this.
std::optional<double> quota_of_late() {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kNever = -1, kFor = std::nano::den;
  static std::atomic<std::int64_t> read_at{kNever};
  static std::atomic<double> read{0};  // 0: none
  const std::int64_t now = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
  const std::int64_t then = read_at.load(std::memory_order_acquire);  // acquire: of the release below
  if (then == kNever || now - then >= kFor) {
    read.store(CpuLimits().cgroup_quota().value_or(0), std::memory_order_relaxed);  // relaxed: published by the next
    read_at.store(now, std::memory_order_release);                                  // release: `read` comes with it
  }
  const double quota = read.load(std::memory_order_relaxed);  // relaxed: as recent as read_at, or more so
  return quota > 0 ? std::optional(quota) : std::nullopt;
}

int usable_cpus_of(std::optional<double> quota) {
  int cpus = CpuSet::of_this_thread().count();
  if (cpus == 0) cpus = int(std::thread::hardware_concurrency());  // the kernel does not tell
  if (quota) cpus = std::min(cpus, int(std::ceil(*quota)));
  return std::max(1, cpus);
}

}  // namespace

int usable_cpus() { return usable_cpus_of(quota_of_late()); }
int usable_cpus(const CpuLimits& limits) { return usable_cpus_of(limits.cgroup_quota()); }

int thread_share(int nprocs, int asked) {
  if (asked > 0) return asked;
  if (user_has_set_threads()) return 0;
  const int own = current_process().num_threads;
  return std::max(1, (own > 0 ? own : usable_cpus()) / nprocs);
}

std::vector<CpuPart> cpu_parts(Binding binding, int nprocs, int asked) {
  const int share = thread_share(nprocs, asked);
  if (binding == Binding::none) return std::vector<CpuPart>(std::size_t(nprocs), CpuPart{{}, share});
  std::vector<CpuPart> parts = divide_cpus(binding, nprocs);
  const auto quota = quota_of_late();
  const int granted = quota ? std::max(1, int(std::ceil(*quota / nprocs))) : 0;
  for (CpuPart& part : parts) {
    if (granted > 0) part.threads = std::min(part.threads, granted);
    if (asked > 0 || share == 0) part.threads = share;
  }
  return parts;
}

int asked_threads(int num_threads, const std::vector<std::pair<std::string, std::string>>& environment) {
  if (num_threads > 0) return num_threads;
  int asked = 0;
  for (const auto& [name, value] : environment)
    if (name == "OMP_NUM_THREADS") asked = std::max(0, std::atoi(value.c_str()));
  return asked;
}

}  // namespace shoal
