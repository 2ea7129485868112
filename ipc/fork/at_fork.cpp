#include <shoal/internal/ipc/fork/at_fork.h>

#include <pthread.h>
#include <sys/single_threaded.h>

#include <exception>
#include <ranges>

namespace shoal {

/// Grows only, at its front: steps that are there before a fork are there after it, behind those that came meanwhile
/// with a library that was loaded in another thread.
struct AtForkList {
  static constinit inline std::atomic<AtFork*> first{nullptr};
  /// The first one when this thread's fork began.
  static constinit inline thread_local AtFork* began_with = nullptr;

  static void add(AtFork& steps) noexcept {
    AtFork* there = first.load();
    do steps.next_ = there;
    while (!first.compare_exchange_weak(there, &steps));
  }

  static void take(ForkStage stage, AtFork::Step AtFork::Steps::* which) noexcept {
    for (const AtFork* each = began_with; each; each = each->next_)
      if (const AtFork::Step step = each->steps_.*which; step && each->steps_.stage == stage) step();
  }

  static constexpr ForkStage kInOrder[] = {ForkStage::kProcess, ForkStage::kSession, ForkStage::kHeap,
                                           ForkStage::kRooms};

  static void before() noexcept {
    began_with = first.load();
    // Stored only if it changes: the page is shared with the children before.
    if (const bool alone = __libc_single_threaded != 0; alone != forks_alone())
      // relaxed: whoever forks beside this thread stores the same, false.
      detail::forks_alone.store(alone, std::memory_order_relaxed);
    for (const ForkStage stage : std::views::reverse(kInOrder)) take(stage, &AtFork::Steps::before);
  }
  static void in_parent() noexcept {
    for (const ForkStage stage : kInOrder) take(stage, &AtFork::Steps::in_parent);
  }
  static void in_child() noexcept {
    // relaxed: there is one thread.
    detail::fork_count.store(detail::fork_count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    for (const ForkStage stage : kInOrder) take(stage, &AtFork::Steps::in_child);
  }
};

AtFork::AtFork(const Steps& steps) noexcept : steps_(steps) { AtForkList::add(*this); }

namespace {

[[gnu::constructor(101)]] void tell_the_c_library() noexcept {
  if (::pthread_atfork(&AtForkList::before, &AtForkList::in_parent, &AtForkList::in_child) != 0) std::terminate();
}

}  // namespace

}  // namespace shoal
