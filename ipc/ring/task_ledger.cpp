#include <shoal/internal/ipc/ring/task_ledger.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/ring/ring.h>
#include <shoal/internal/ipc/wait/wait.h>
#include <shoal/ipc/error.h>

#include <stdexcept>

// All atomics here are seq_cst: a task costs one read-modify-write at each step, which no order makes cheaper on
// the processors in question, and the comparison in check_for_loss() needs one order for all.

namespace shoal {
namespace {

/// An entry of the ledger: whose tasks, and how many.
using Tag = BitField<0, 32>;
using Tasks = BitField<Tag::kEnd, 32>;

std::uint32_t tag_of(std::uint64_t entry) { return std::uint32_t(Tag::of(entry)); }
std::uint64_t tasks_of(std::uint64_t entry) { return Tasks::of(entry); }

}  // namespace

void TaskLedger::taken() noexcept {
  const ProcessTag self = Session::current().self();
  auto& entry = layout().taken[self.slot()];
  std::uint64_t seen = entry.load();
  // What a dead process left in this slot is no living process's task: overwritten.
  while (!entry.compare_exchange_weak(seen,
                                      tag_of(seen) == self.word() ? seen + Tasks::kOne : Tasks::kOne | self.word())) {
  }
}

bool TaskLedger::take_from(std::atomic<std::uint64_t>& entry, std::uint32_t tag) noexcept {
  std::uint64_t seen = entry.load();
  while (tasks_of(seen) > 0 && (tag == 0 || tag_of(seen) == tag))
    if (entry.compare_exchange_weak(seen, seen - Tasks::kOne)) return true;
  return false;
}

void TaskLedger::done() {
  std::uint64_t left = layout().unfinished.load();
  do
    if (left == 0) throw std::logic_error("JoinableQueue::task_done: called more often than tasks were put");
  while (!layout().unfinished.compare_exchange_weak(left, left - 1));
  SHOAL_KILL_POINT("tasks.done.counted");
  // The ledger after the count: whoever compares the two in between finds a task more than there is, and
  // looks again, never one less.
  const ProcessTag self = Session::current().self();
  if (!take_from(layout().taken[self.slot()], self.word()))
    for (auto& entry : layout().taken)
      if (take_from(entry, 0)) break;  // done here, taken elsewhere
  if (left == 1) layout().all_done.notify_all();
}

std::uint64_t TaskLedger::taken_by_the_living() const {
  SessionCore& session = SessionCore::current();
  std::uint64_t sum = 0;
  for (auto& entry : layout().taken) {
    std::uint64_t seen = entry.load();
    if (tasks_of(seen) > 0 && counts_as_alive(session, ProcessTag::from_word(tag_of(seen)))) sum += tasks_of(seen);
  }
  return sum;
}

void TaskLedger::check_for_loss(Ring& ring) {
  std::uint64_t unfinished = layout().unfinished.load();
  const std::uint64_t moves = ring.moves();
  if (unfinished == 0 || ring.messages_by_cell() + taken_by_the_living() > 0) return;
  // Nothing was put or taken while we counted: there is no task that we looked past.
  if (ring.moves() != moves || !layout().unfinished.compare_exchange_strong(unfinished, 0)) return;
  layout().all_done.notify_all();
  throw PeerDied(
      fmt::format("JoinableQueue::join: {} tasks were lost with processes that died before task_done()", unfinished));
}

bool TaskLedger::wait_all_done(Ring& ring, Deadline deadline) {
  Sleeper<ThisProcess> sleeper(kLivenessSlice);  // reclaim wakes nobody who joins
  while (layout().unfinished.load() != 0) {
    if (deadline.passed()) return false;
    if (sleeper.spins()) continue;
    std::uint32_t prepared = layout().all_done.prepare();
    if (layout().unfinished.load() == 0) break;
    if (sleeper.has_slept()) check_for_loss(ring);
    sleeper.sleep_on(&layout().all_done, deadline, [&](auto at_most) { layout().all_done.sleep(prepared, at_most); });
  }
  sleeper.ended();
  return true;
}

constinit const BlockKind kTaskLedgerKind{.wait_name = [](std::uint64_t) { return "join"; }};

}  // namespace shoal
