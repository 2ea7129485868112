// Which tasks of a joinable queue are not done yet, and whose they are.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/sync/shared_part.h>

#include <atomic>
#include <cstdint>

namespace shoal {

class Ring;

/// In shared memory, in a block of its own.
struct TaskLedgerLayout {
  static constexpr std::uint32_t kMagic = 0x6b736174;  // "task"
  static constexpr std::uint32_t kVersion = 2;

  static constexpr const char* kName = "task ledger";

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  EventWord all_done;
  std::uint32_t reserved = 0;
  BlockOffset ring;                       // the queue whose tasks these are, for observers
  std::atomic<std::uint64_t> unfinished;  // put and not done
  /// One for each slot of the process table: bits 0..31 tag, bits 32..63 tasks that it took and that
  /// are not done.
  std::atomic<std::uint64_t> taken[ProcessTag::kSlotCount];
};

static_assert(sizeof(TaskLedgerLayout) == 32 + 8 * ProcessTag::kSlotCount);

/// This process's view of a ledger. Threads and processes: any, at once.
///
/// `unfinished` alone decides when all is done. It is right as long as nobody dies; a process that dies
/// with tasks in hand, or between counting one and publishing it, leaves it too high for ever. That is
/// found by comparing it with the tasks that exist: messages in the ring, and tasks that living processes
/// have taken. A task is counted before it can be seen and while its cell belongs to one process, so a
/// task that exists is missing from neither.
class TaskLedger {
 public:
  /// `ring`: of the queue whose tasks these are.
  explicit TaskLedger(BlockOffset ring)
      : part_(SharedPart<TaskLedgerLayout>::create(BlockType::kTaskLedger,
                                                   [ring](TaskLedgerLayout& layout) { layout.ring = ring; })) {}
  void encode(Encoder& encoder) const { part_.encode(encoder); }
  /// Throws DecodeError if the block is no ledger.
  static TaskLedger decode(Decoder& decoder) { return TaskLedger(SharedPart<TaskLedgerLayout>::decode(decoder)); }

  void added() noexcept { layout().unfinished.fetch_add(1); }
  void taken() noexcept;
  /// Says that a task is done: one that this process took, otherwise one that any process took. Throws std::logic_error
  /// if there is none.
  void done();

  /// Waits until no task is unfinished; false at the deadline. Throws PeerDied, once for each loss, if
  /// tasks were lost with processes that died; they are then no longer counted.
  bool wait_all_done(Ring& ring, Deadline deadline);
  std::uint64_t unfinished() const { return layout().unfinished.load(); }

 private:
  explicit TaskLedger(SharedPart<TaskLedgerLayout> part) : part_(std::move(part)) {}
  TaskLedgerLayout& layout() const { return *part_; }
  std::uint64_t taken_by_the_living() const;
  void check_for_loss(Ring& ring);
  bool take_from(std::atomic<std::uint64_t>& entry, std::uint32_t tag) noexcept;

  SharedPart<TaskLedgerLayout> part_;
};

}  // namespace shoal
