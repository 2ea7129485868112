#include <shoal/runtime/hooks.h>

#include <array>
#include <atomic>
#include <stdexcept>

namespace shoal {
namespace {

/// Constant-initialized, so it is there for the static initializers of other files; without a mutex,
/// so that no fork can find it locked.
template <class Hook>
class HookList {
 public:
  void add(Hook hook) {
    for (auto& entry : hooks_) {
      Hook expected = nullptr;
      if (entry.compare_exchange_strong(expected, hook) || expected == hook) return;
    }
    throw std::length_error("shoal: more than 16 hooks of one kind");
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (auto& entry : hooks_)
      if (Hook hook = entry.load()) visit(hook);
  }

 private:
  std::array<std::atomic<Hook>, 16> hooks_{};
};

constinit HookList<void (*)()> preloads;
constinit HookList<void (*)(int)> thread_setters;
constinit HookList<const char* (*)()> fork_refusals;

}  // namespace

void register_preload(void (*preload)()) { preloads.add(preload); }
void register_thread_setter(void (*set_threads)(int)) { thread_setters.add(set_threads); }
void register_fork_refusal(const char* (*refusal)()) { fork_refusals.add(refusal); }

namespace hooks {

void run_preloads() {
  preloads.for_each([](auto hook) { hook(); });
}

void set_threads(int threads) {
  thread_setters.for_each([&](auto hook) { hook(threads); });
}

const char* fork_refusal() {
  const char* refusal = nullptr;
  fork_refusals.for_each([&](auto hook) {
    if (!refusal) refusal = hook();
  });
  return refusal;
}

}  // namespace hooks
}  // namespace shoal
