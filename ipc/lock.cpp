#include <shoal/ipc/error.h>
#include <shoal/ipc/kill_point.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/session.h>
#include <shoal/ipc/sync/event_word.h>
#include <shoal/ipc/sync/spin.h>

#include <new>
#include <stdexcept>

namespace shoal {

Lock::Lock() : Lock(allocate_shared(sizeof(LockLayout))) {
  new (layout_) LockLayout{LockLayout::kMagic, LockLayout::kVersion, {0}, {0}};
}

Lock::Lock(Hold hold)
    : hold_(std::make_shared<Hold>(std::move(hold))), layout_(reinterpret_cast<LockLayout*>(hold_->data())) {}

std::optional<bool> Lock::lock_until(Deadline deadline) {
  std::uint32_t expected = 0;
  // A1: pairs with R1 in unlock.
  if (layout().word.compare_exchange_strong(expected, Session::current().self().word(), std::memory_order_acquire))
    return false;
  return lock_slowly(deadline);
}

std::optional<bool> Lock::lock_slowly(Deadline deadline) {
  Session& session = Session::current();
  const std::uint32_t self = session.self().word();
  Spinner spinner;
  bool slept = false;
  for (;;) {
    std::uint32_t word = layout().word.load(std::memory_order_relaxed);  // relaxed: the CAS decides
    if (word == 0) {
      // One who slept cannot know whether others do still: it keeps their bit.
      std::uint32_t wanted = slept ? self | LockLayout::kWaiters : self;
      if (!layout().word.compare_exchange_strong(word, wanted, std::memory_order_acquire)) continue;  // A1
      spinner.ended(!slept);
      return false;
    }
    if (deadline.passed()) return std::nullopt;
    if (!slept && spinner.turn()) continue;
    ProcessTag holder = ProcessTag::from_word(word);
    if (slept && !session.is_alive(holder)) {
      // Its holder died. From its tag to ours by one CAS: exactly one waiter inherits the lock. acquire:
      // what the dead one wrote before it died is in memory, as far as it got.
      if (layout().word.compare_exchange_strong(word, self | LockLayout::kWaiters, std::memory_order_acquire)) {
        layout().deaths.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
        return true;
      }
      continue;
    }
    if ((word & LockLayout::kWaiters) == 0 &&
        !layout().word.compare_exchange_strong(word, word | LockLayout::kWaiters, std::memory_order_relaxed))
      continue;  // relaxed: says only that somebody sleeps
    futex_wait(layout().word, word | LockLayout::kWaiters, deadline.left(kLivenessSlice));
    slept = true;
  }
}

void Lock::unlock() {
  std::uint32_t word = layout().word.load(std::memory_order_relaxed);  // relaxed: only our own tag matters
  if (ProcessTag::from_word(word) != Session::current().self())
    throw std::logic_error("Lock::unlock: this process does not hold the lock");
  SHOAL_KILL_POINT("lock.unlock");
  // R1: what was done under the lock comes before.
  if (layout().word.exchange(0, std::memory_order_release) & LockLayout::kWaiters) futex_wake(layout().word, 1);
}

std::uint32_t Lock::owner_deaths() const { return layout().deaths.load(); }

Lock Codec<Lock>::decode(Decoder& decoder) {
  Hold hold = decoder.handle(decoder.read<std::uint32_t>()).share();
  if (hold.size() != sizeof(LockLayout)) throw DecodeError("this block of shared memory is no lock");
  Lock lock(std::move(hold));
  if (lock.layout().magic != LockLayout::kMagic || lock.layout().version != LockLayout::kVersion)
    throw DecodeError("this block of shared memory is no lock of this version");
  return lock;
}

}  // namespace shoal
