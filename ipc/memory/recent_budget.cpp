#include <shoal/internal/ipc/memory/recent_budget.h>

namespace shoal {

RecentBudget& RecentBudget::of_process() {
  static auto* budget = new RecentBudget;  // never destroyed, as the heap is not
  return *budget;
}

Budget RecentBudget::of(std::uint64_t committed, std::uint64_t more, const std::function<std::uint64_t()>& resident,
                        Clock::time_point now) {
  const Budget setting = Budget::of_setting();
  // acquire: pairs with the release below, so that what is read next is of that look or of a later one.
  if (now.time_since_epoch().count() < until_.load(std::memory_order_acquire)) {
    const std::uint64_t allowed = allowed_.load(std::memory_order_relaxed);  // relaxed: brought by the acquire above
    const Budget::Which which = which_.load(std::memory_order_relaxed);      // relaxed: likewise
    if (committed + more <= allowed) return setting.lower(Budget::of(allowed, which));
  }
  const Budget kernel = Budget::of_kernel(committed, resident(), limits_);
  allowed_.store(kernel.allowed, std::memory_order_relaxed);  // relaxed: published by the next store but one
  which_.store(kernel.which, std::memory_order_relaxed);      // relaxed: published by the next store
  // release: publishes the two before it.
  until_.store((now + kGoodFor).time_since_epoch().count(), std::memory_order_release);
  return setting.lower(kernel);
}

}  // namespace shoal
