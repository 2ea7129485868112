#include <shoal/internal/ipc/process/at_fork.h>

#include <atomic>
#include <cstddef>
#include <exception>

namespace shoal {
namespace {

constexpr std::size_t kMost = 8;
constinit std::atomic<const AtFork*> all[kMost]{};
/// How many were there when this thread's fork began.
constinit thread_local std::size_t there_before = 0;

/// Those that were given meanwhile, too, unless their first half is missing.
template <class Step>
void after(Step step) {
  for (std::size_t i = 0; i < kMost; ++i) {
    const AtFork* steps = all[i].load();
    if (!steps) return;
    if (steps->*step && (i < there_before || !steps->before)) (steps->*step)();
  }
}

}  // namespace

void at_fork(const AtFork& steps) noexcept {
  for (std::atomic<const AtFork*>& place : all) {
    const AtFork* there = nullptr;
    if (place.compare_exchange_strong(there, &steps) || there == &steps) return;
  }
  std::terminate();  // more of them than there are in shoal
}

void at_fork_steps::before() noexcept {
  there_before = 0;
  while (there_before < kMost && all[there_before].load()) ++there_before;
  for (std::size_t i = there_before; i-- > 0;)
    if (auto* step = all[i].load()->before) step();
}

void at_fork_steps::in_parent() noexcept { after(&AtFork::in_parent); }

void at_fork_steps::in_child() noexcept { after(&AtFork::in_child); }

}  // namespace shoal
