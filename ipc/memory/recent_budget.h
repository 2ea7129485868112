// The heap's budget, without asking the kernel at each allocation.
#pragma once

#include <shoal/internal/ipc/memory/budget.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace shoal {

/// A look at the kernel's limits opens some twenty files, most of a millisecond; who makes a batch of large blocks
/// would spend more time there than with the memory. So what a look has said is good for kGoodFor in this process. It
/// is the sum that the heap may hold in all: what any process of the session has committed since then counts against
/// it, as the session counts that in its shared memory. What other programs take meanwhile does not; they have had
/// kGoodFor for it. Nothing is refused by an old look: only a new one says no. SHOAL_MEMORY_LIMIT costs nothing, and is
/// looked at each time. One for a process; threads: any, also under a mutex, and across a fork.
class RecentBudget {
 public:
  static constexpr std::chrono::milliseconds kGoodFor{10};
  using Clock = std::chrono::steady_clock;

  explicit RecentBudget(MemoryLimits limits = MemoryLimits()) : limits_(std::move(limits)) {}
  static RecentBudget& of_process();

  /// The budget for a heap that has `committed` bytes and wants `more`. If it is less than their sum, it is surely that
  /// of this moment. `resident` as for Budget::now, called only if a new look is made.
  Budget of(std::uint64_t committed, std::uint64_t more, const std::function<std::uint64_t()>& resident,
            Clock::time_point now = Clock::now());

 private:
  const MemoryLimits limits_;
  // Two looks at once may leave the allowance of one with the time of the other: both are some milliseconds old.
  std::atomic<std::uint64_t> allowed_{0};
  std::atomic<Budget::Which> which_{Budget::Which::kNone};
  std::atomic<Clock::rep> until_{Clock::time_point::min().time_since_epoch().count()};
};

}  // namespace shoal
