#include <shoal/internal/tensors/storage/known_by_address.h>

#include <shoal/internal/ipc/fork/at_fork.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace shoal {
namespace {

std::mutex mutex_of_known;

/// How many there are. relaxed, everywhere: who frees memory that is known has got it from who made it known, and so sees
/// that there is some.
std::atomic<std::size_t> count_of_known{0};
constexpr auto kSeenWithMemory = std::memory_order_relaxed;

/// Never destroyed: tensors with static lifetime are freed by it.
std::unordered_map<const void*, c10::DataPtr>& known() {
  static auto& memory = *new std::unordered_map<const void*, c10::DataPtr>;
  return memory;
}

[[gnu::init_priority(101)]] const AtFork wait_for_known({.stage = ForkStage::kHeap,
                                                         .before = &ForkWaitsFor<mutex_of_known>::lock,
                                                         .in_parent = &ForkWaitsFor<mutex_of_known>::unlock,
                                                         .in_child = &ForkWaitsFor<mutex_of_known>::unlock});

void free_known(void* address) { free_by_address(address); }

}  // namespace

c10::DataPtr known_by_address(c10::DataPtr memory) {
  void* const address = memory.get();
  if (!address) return memory;
  const c10::Device device = memory.device();
  const std::lock_guard lock(mutex_of_known);
  known().insert_or_assign(address, std::move(memory));
  count_of_known.fetch_add(1, kSeenWithMemory);
  return {address, address, &free_known, device};
}

bool is_known_by_address(const c10::DataPtr& memory) { return memory.get_deleter() == &free_known; }

const c10::DataPtr* behind_address(const c10::DataPtr& memory) {
  if (!is_known_by_address(memory)) return &memory;
  const std::lock_guard lock(mutex_of_known);
  return &known().at(memory.get());
}

bool free_by_address(void* address) noexcept {
  if (count_of_known.load(kSeenWithMemory) == 0) return false;  // most raw memory is not shoal's
  c10::DataPtr memory;                                          // freed without the lock
  const std::lock_guard lock(mutex_of_known);
  const auto found = known().find(address);
  if (found == known().end()) return false;
  memory = std::move(found->second);
  known().erase(found);
  count_of_known.fetch_sub(1, kSeenWithMemory);
  return true;
}

}  // namespace shoal
