#include <shoal/ipc/barrier.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/heap/other_holders.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/ipc/sync/barrier_protocol.h>

#include <stdexcept>

namespace shoal {
namespace {

std::uint32_t checked(int parties) {
  if (parties < 1 || parties > int(BarrierLayout::kMostParties))
    throw std::invalid_argument(
        fmt::format("Barrier of {} parties: give 1 to {}", parties, BarrierLayout::kMostParties));
  return std::uint32_t(parties);
}

}  // namespace

Barrier::Barrier(int parties, std::chrono::nanoseconds timeout)
    : part_(SharedPart<BarrierLayout>::create(BlockType::kBarrier,
                                              [count = checked(parties), timeout](BarrierLayout& layout) {
                                                layout.parties = count;
                                                layout.timeout = timeout.count();
                                              })) {}

int Barrier::wait_until(const std::function<void()>& action, Deadline deadline) {
  if (part_->shared.load() == 0 && is_held_by_others(part_.block())) part_->shared.store(1);
  using Outcome = BarrierLayout::Outcome;
  const Outcome outcome = part_->wait(action, deadline, [this] { look_after_others(); });
  switch (outcome.end) {
    case Outcome::kMet:
      return outcome.count;
    case Outcome::kIsBroken:
      throw BrokenBarrier("Barrier::wait: the barrier is broken; reset() makes it whole");
    case Outcome::kWasBroken:
      throw BrokenBarrier("Barrier::wait: the barrier was broken while waiting");
    case Outcome::kWasReset:
      throw BrokenBarrier("Barrier::wait: the barrier was reset while waiting");
    case Outcome::kActionWasted:
      throw BrokenBarrier("Barrier::wait: the barrier was broken or reset while its action ran");
    case Outcome::kTimedOut:
      break;
  }
  throw BrokenBarrier(fmt::format("Barrier::wait: timed out with {} of {} parties there", outcome.count, parties()));
}

void Barrier::look_after_others() {
  // Whoever reclaims a holder that crashed breaks the barrier.
  if (is_held_by_others(part_.block()))
    part_->shared.store(1);
  else if (part_->shared.load() != 0)
    part_->break_it();  // those that had it are gone: nobody is left to come
}

void Barrier::abort() { part_->break_it(); }

void Barrier::reset() { part_->reset(); }

bool Barrier::broken() const { return part_->broken(); }
int Barrier::n_waiting() const { return part_->arrived(); }

constinit const BlockKind kBarrierKind{
    .holder_crashed = [](std::byte* payload) { reinterpret_cast<BarrierLayout*>(payload)->break_it(); },
    .wait_name = [](std::uint64_t) { return "barrier"; },
};

}  // namespace shoal
