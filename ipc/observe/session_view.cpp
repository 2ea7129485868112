#include <shoal/internal/ipc/observe/session_view.h>

#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/memory/budget.h>
#include <shoal/internal/ipc/observe/heap_walk.h>
#include <shoal/internal/ipc/observe/ring_look.h>
#include <shoal/internal/ipc/pipe/end.h>
#include <shoal/internal/ipc/process/activity.h>
#include <shoal/internal/ipc/ring/task_ledger.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/rlock.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <unordered_set>

namespace shoal {
namespace {

/// One look through a session.
class Look {
 public:
  Look(const SessionFile& file, Pss pss, SessionView& view) : file_(file), pss_(pss), view_(view) { index_.fill(-1); }

  void take() {
    read_first_page();
    read_processes();
    view_.heap.deaths = copied(layout_.deaths);
    const SeenExtents extents = walk_heap(file_, [&](const SeenBlock& block) { add(block); });
    for (std::uint32_t slot = 0; slot < ProcessTag::kSlotCount; ++slot)
      if (index_[slot] >= 0) view_.processes[std::size_t(index_[slot])].extents = extents.by_owner[slot];
    for (std::size_t i = 0; i < parents_.size(); ++i)
      if (const SeenProcess* parent = process(parents_[i].slot());
          parents_[i] && parent && parent->generation == parents_[i].generation())
        view_.processes[i].parent = parent->slot;
    // The kernel knows it too, also of those that nobody noted.
    std::unordered_map<pid_t, std::uint32_t> slots;
    for (const SeenProcess& process : view_.processes) slots[process.pid] = process.slot;
    for (SeenProcess& process : view_.processes)
      if (const auto found = slots.find(process.usage.parent); !process.parent && found != slots.end())
        process.parent = found->second;
    SeenHeap& heap = view_.heap;
    heap.extents = extents.touched;
    heap.orphan_extents = extents.by_owner[ExtentRecord::kOrphan];
    heap.committed_bytes = extents.committed * kExtentBytes + extents.header_bytes;
    heap.idle_bytes = extents.idle * kExtentBytes;
    resolve_pipes_and_tasks();
    resolve_waits();
    std::erase_if(view_.locks, [](const SeenLock& lock) { return !lock.holder && lock.waits.empty(); });
    view_.complete = view_.complete && !file_.is_exhausted();
  }

 private:
  void read_first_page() {
    view_.complete = file_.read(0, layout_);
    view_.root = file_.plan().root_pid;
    SeenHeap& heap = view_.heap;
    heap.peak_bytes = copied(layout_.extents_peak) * kExtentBytes;
    heap.address_bytes = file_.plan().extent_count * kExtentBytes;
    heap.resident_bytes = file_.resident();
    heap.allowed_bytes = copied(layout_.allowed_bytes);
    heap.allowed_by = Budget::name(Budget::Which(copied(layout_.allowed_by)));
  }

  void read_processes() {
    constexpr std::uint32_t kAtOnce = 256;
    const auto records = std::make_unique<ProcessRecord[]>(kAtOnce);
    for (std::uint32_t first = 0; first < ProcessTag::kSlotCount; first += kAtOnce) {
      if (!file_.read(file_.plan().processes + first * sizeof(ProcessRecord), records.get(),
                      kAtOnce * sizeof(ProcessRecord)))
        return;
      for (std::uint32_t i = 0; i < kAtOnce; ++i) add(first + i, records[i]);
    }
  }

  void add(std::uint32_t slot, const ProcessRecord& record) {
    const auto state = ProcessRecord::state_of(copied(record.state));
    if (state != ProcessRecord::kAlive && state != ProcessRecord::kDead) return;
    SeenProcess process{};
    process.slot = slot;
    process.generation = copied(record.generation) & ProcessTag::kGenerationMask;
    parents_.push_back(ProcessTag::from_word(copied(record.parent)));
    process.pid = copied(record.pid);
    process.rank = record.rank;
    process.name.assign(record.name, ::strnlen(record.name, sizeof record.name));
    if (process.pid > 0) process.usage = read_usage(process.pid, copied(record.taken_at), pss_);
    process.state = state == ProcessRecord::kDead                       ? SeenProcess::State::kBeingReclaimed
                    : process.usage.found && process.usage.state != 'Z' ? SeenProcess::State::kAlive
                                                                        : SeenProcess::State::kEnded;
    read_activity(process);
    index_[slot] = int(view_.processes.size());
    view_.processes.push_back(std::move(process));
  }

  void read_activity(SeenProcess& process) {
    const std::uint64_t at = file_.plan().activities + process.slot * sizeof(ActivityRecord);
    // What is being written at this moment is read again.
    constexpr int kTries = 4;
    ActivityRecord record{};
    for (int i = 0; i < kTries; ++i) {
      ActivityRecord again{};
      if (!file_.read(at, record) || !file_.read(at, again)) return;
      const auto changes = copied(record.label_changes);
      if (changes % 2 == 0 && changes == copied(again.label_changes)) break;
    }
    if (copied(record.owner) != ProcessTag(process.slot, process.generation).word()) return;
    char label[ActivityRecord::kLabelBytes];
    std::memcpy(label, static_cast<const void*>(record.label), sizeof label);
    process.label.assign(label, ::strnlen(label, sizeof label));
    if (process.state != SeenProcess::State::kAlive) return;  // it waits for nothing any more
    for (const ActivityRecord::Wait& wait : record.waits) {
      const std::uint64_t word = copied(wait.word);
      if (word == 0 || copied(wait.thread) == 0) continue;
      const std::uint64_t since = std::min(copied(wait.since), view_.time);
      process.waits.push_back({process.slot, copied(wait.thread), kOtherWait, 0, since});
      words_.push_back(word);
    }
  }

  SeenProcess* process(std::uint32_t slot) {
    return slot < index_.size() && index_[slot] >= 0 ? &view_.processes[std::size_t(index_[slot])] : nullptr;
  }

  void add(const SeenBlock& block) {
    ++view_.heap.blocks;
    view_.heap.bytes += block.size;
    if (SeenProcess* owner = process(block.owner)) {
      ++owner->owned_blocks;
      owner->owned_bytes += block.size;
    } else if (block.owner == ExtentRecord::kOrphan) {
      view_.heap.orphan_bytes += block.size;
    }
    holders_.clear();
    bool in_message = false;
    for (const std::uint32_t word : block.holds) {
      const ProcessTag tag = ProcessTag::from_word(word);
      SeenProcess* holder = process(tag.slot());
      if (word != tag.word()) {
        in_message = true;
      } else if (holder && holder->generation == tag.generation() &&
                 std::ranges::find(holders_, tag.slot()) == holders_.end()) {
        holders_.push_back(tag.slot());
        ++holder->held_blocks;
        holder->held_bytes += block.size;
      }
    }
    if (in_message) view_.heap.message_bytes += block.size;
    // More would be none of a program's, but a heap full of nonsense.
    constexpr std::size_t kMostListed = 1 << 16;
    if (view_.queues.size() + view_.locks.size() + pipe_rings_.size() + tasks_.size() > kMostListed) {
      view_.complete = false;
    } else if (block.type == BlockType::kRing) {
      if (auto queue = look_at_ring(file_, block)) {
        queue->holders = holders_;
        view_.queues.push_back(std::move(*queue));
      }
    } else if (block.type == BlockType::kPipeEnd) {
      PipeEndLayout end{};
      if (file_.read(block.payload, end) && end.magic == PipeEndLayout::kMagic)
        for (const HoldRef& ring : {end.in, end.out})
          if (ring.block) pipe_rings_.emplace(ring.block.value, holders_);
    } else if (block.type == BlockType::kTaskLedger) {
      read_ledger(block);
    } else if (block.type == BlockType::kLock || block.type == BlockType::kRLock) {
      read_lock(block);
    }
  }

  void read_ledger(const SeenBlock& block) {
    // Without the long table at its end.
    alignas(TaskLedgerLayout) std::byte start[offsetof(TaskLedgerLayout, taken)];
    if (block.size != sizeof(TaskLedgerLayout) || !file_.read(block.payload, start, sizeof start)) return;
    std::uint64_t ring = 0, unfinished = 0;
    std::memcpy(&ring, start + offsetof(TaskLedgerLayout, ring), sizeof ring);
    std::memcpy(&unfinished, start + offsetof(TaskLedgerLayout, unfinished), sizeof unfinished);
    tasks_[ring] = unfinished;
    ring_of_ledger_[block.block.value] = ring;
  }

  void read_lock(const SeenBlock& block) {
    const bool recursive = block.type == BlockType::kRLock;
    LockWord lock;
    if (!file_.read(block.payload + (recursive ? offsetof(RLockLayout, lock) : offsetof(LockLayout, lock)), lock))
      return;
    SeenLock seen{block.block.value, recursive, {}, copied(lock.deaths), {}};
    const auto holder = ProcessTag::from_word(copied(lock.word));
    if (holder) seen.holder = holder.slot();
    view_.locks.push_back(std::move(seen));
  }

  void resolve_pipes_and_tasks() {
    for (SeenQueue& queue : view_.queues) {
      const auto [from, to] = pipe_rings_.equal_range(queue.block);
      for (auto end = from; end != to; ++end) {
        queue.kind = SeenQueue::Kind::kPipe;
        queue.holders.insert(queue.holders.end(), end->second.begin(), end->second.end());
      }
      std::ranges::sort(queue.holders);
      const auto repeated = std::ranges::unique(queue.holders);
      queue.holders.erase(repeated.begin(), repeated.end());
      if (const auto tasks = tasks_.find(queue.block); tasks != tasks_.end()) {
        queue.kind = SeenQueue::Kind::kJoinable;
        queue.unfinished = tasks->second;
      }
    }
  }

  void resolve_waits() {
    std::unordered_map<std::uint64_t, SeenQueue*> queues;
    for (SeenQueue& queue : view_.queues) queues[queue.block] = &queue;
    std::unordered_map<std::uint64_t, SeenLock*> locks;
    for (SeenLock& lock : view_.locks) locks[lock.block] = &lock;
    std::size_t next_word = 0;
    for (SeenProcess& process : view_.processes)
      for (SeenWait& wait : process.waits) {
        resolve(wait, words_[next_word++]);
        if (const auto queue = queues.find(wait.block); queue != queues.end())
          queue->second->waits.push_back(wait);
        else if (const auto lock = locks.find(wait.block); lock != locks.end())
          lock->second->waits.push_back(wait);
        else
          view_.other_waits.push_back(wait);
      }
  }

  void resolve(SeenWait& wait, std::uint64_t word) {
    const WaitSubject subject = subject_of_wait(file_, word);
    wait.what = subject.what;
    wait.block = subject.block;
    // The tasks of a joinable queue lie beside it.
    if (const auto ring = ring_of_ledger_.find(wait.block); ring != ring_of_ledger_.end()) wait.block = ring->second;
  }

  const SessionFile& file_;
  const Pss pss_;
  SessionView& view_;
  SessionLayout layout_{};
  std::array<int, ProcessTag::kSlotCount> index_;  // slot -> place in view_.processes
  std::vector<ProcessTag> parents_;                // of view_.processes
  std::vector<std::uint64_t> words_;               // that the waits are on, in the order of processes and their waits
  std::vector<std::uint32_t> holders_;             // of the block that is looked at: kept for its memory
  std::unordered_multimap<std::uint64_t, std::vector<std::uint32_t>> pipe_rings_;  // ring -> who has an end of it
  std::unordered_map<std::uint64_t, std::uint64_t> tasks_;                         // ring -> unfinished
  std::unordered_map<std::uint64_t, std::uint64_t> ring_of_ledger_;
};

}  // namespace

WaitSubject subject_of_wait(const SessionFile& file, std::uint64_t word) {
  const auto block = block_at(file, word);
  if (!block) return {};
  auto* name = block_kind(block->type).wait_name;
  return {name ? name(word - block->payload) : kOtherWait, block->block.value};
}

const char* name_of(SeenQueue::Kind kind) {
  static constexpr const char* kNames[] = {"queue", "joinable queue", "pipe", "channel"};
  return kNames[int(kind)];
}

const SeenProcess* SessionView::process(std::uint32_t slot) const {
  const auto found = std::ranges::lower_bound(processes, slot, {}, &SeenProcess::slot);
  return found != processes.end() && found->slot == slot ? &*found : nullptr;
}

SessionView look_at(const SessionFile& file, Pss pss) {
  file.begin_look();
  SessionView view{};
  view.time = activity::now();
  std::make_unique<Look>(file, pss, view)->take();
  return view;
}

}  // namespace shoal
