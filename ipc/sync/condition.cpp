#include <shoal/ipc/condition.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/sync/condition_protocol.h>
#include <shoal/internal/ipc/wait/wait.h>

#include <stdexcept>

namespace shoal {

// For reclaim, which knows the layout alone.
template void BasicConditionLayout<RealWorld, 1021>::recover(ProcessTag);
template void BasicConditionLayout<RealWorld, 1021>::wake_all();

bool Condition::wait_until(Deadline deadline) {
  check_lock("wait");
  std::uint32_t depth = 0;
  switch (part_->wait(
      deadline, [&] { depth = unlock_all(); }, [&] { lock_again(depth); },
      [&] { return left_alone(part_.block(), part_->crashes); })) {
    case ConditionLayout::End::kNotified:
      return true;
    case ConditionLayout::End::kTimedOut:
      return false;
    case ConditionLayout::End::kAlone:
      throw PeerDied("Condition::wait: the other processes that had the condition are dead");
    case ConditionLayout::End::kNoRoom:
      break;
  }
  throw Error(fmt::format("Condition::wait: {} threads wait for this condition, which is the most that can",
                          ConditionLayout::kMostWaiters));
}

void Condition::notify(std::size_t count) {
  check_lock("notify");
  for (; count > 0; --count)
    if (!part_->notify_oldest([](ProcessTag) { return true; })) return;
}

void Condition::notify_all() {
  check_lock("notify_all");
  part_->notify_all();
}

void Condition::check_lock(const char* operation) const {
  if (!std::visit([](auto& lock) { return lock.is_own(); }, lock_))
    throw std::logic_error(fmt::format("Condition::{}: the caller does not hold the condition's lock", operation));
}

std::uint32_t Condition::unlock_all() {
  if (auto* recursive = std::get_if<RLock>(&lock_)) return recursive->unlock_all();
  std::get<Lock>(lock_).unlock();
  return 1;
}

void Condition::lock_again(std::uint32_t depth) {
  if (auto* recursive = std::get_if<RLock>(&lock_))
    recursive->lock_again(depth);
  else
    std::get<Lock>(lock_).lock();
}

constinit const BlockKind kConditionKind{
    .recover = [](std::byte* payload, ProcessTag dead) { reinterpret_cast<ConditionLayout*>(payload)->recover(dead); },
    .holder_crashed =
        [](std::byte* payload) {
          auto& condition = *reinterpret_cast<ConditionLayout*>(payload);
          condition.crashes.fetch_add(1);
          condition.wake_all();
        },
    .wait_name = [](std::uint64_t) { return "condition"; },
};

}  // namespace shoal
