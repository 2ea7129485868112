#include <shoal/internal/ipc/trace/sleep_note.h>

#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/activity.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/process/thread_number.h>
#include <shoal/ipc/trace_span.h>

namespace shoal {

using Wait = ActivityRecord::Wait;

// Whoever reads these records does so from outside, by copies of the bytes. The orders below are for the sake of such a
// copy: on the way to memory no store overtakes the one that says that it is valid.

void SleepNote::begin(const void* word) {
  since_ = activity::now();
  SessionCore& session = SessionCore::current();
  const auto offset = std::uint64_t(static_cast<const std::byte*>(word) - session.base());
  if (offset >= session.layout().bytes) return;  // of one process's threads among themselves
  word_ = offset;
  trace::let_go();
  ActivityRecord& record = session.activity(session.self().slot());
  const std::uint32_t thread = activity::thread();
  for (std::uint32_t i = 0; i < ActivityRecord::kWaits; ++i) {
    Wait& wait = record.waits[(thread_number() + i) % ActivityRecord::kWaits];
    std::uint32_t free = 0;
    if (!wait.thread.compare_exchange_strong(free, thread)) continue;
    wait.since.store(since_, std::memory_order_relaxed);  // relaxed: the word below makes it count
    wait.word.store(offset, std::memory_order_release);   // release: after the thread and since when
    place_ = &wait;
    return;
  }
}

void SleepNote::end() noexcept {
  if (place_) {
    Wait& wait = *static_cast<Wait*>(place_);
    wait.word.store(0, std::memory_order_relaxed);    // relaxed: the thread's release comes after
    wait.thread.store(0, std::memory_order_release);  // the word before: a free record says nothing
  }
  if (word_ != 0 && trace::is_on()) [[unlikely]]
    trace::write(TraceKind::kWait, since_, trace::now(), {}, word_);
}

}  // namespace shoal
