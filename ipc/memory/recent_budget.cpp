#include <shoal/internal/ipc/memory/recent_budget.h>

#include <memory>

namespace shoal {

/// No static that is initialized at the first call: a child that is forked while another thread does that waits for it
/// for ever. So two threads may make one each, and the second one's goes.
RecentBudget& RecentBudget::of_process() {
  static constinit std::atomic<RecentBudget*> budget{nullptr};   // never destroyed, as the heap is not
  RecentBudget* there = budget.load(std::memory_order_acquire);  // A1: pairs with R1
  if (there) return *there;
  auto made = std::make_unique<RecentBudget>();
  // R1: whoever finds it finds it whole. acquire, if another thread was first: pairs with its R1.
  if (budget.compare_exchange_strong(there, made.get(), std::memory_order_acq_rel, std::memory_order_acquire))
    return *made.release();
  return *there;
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
