#include <shoal/ipc/trace_span.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/activity.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/heap.h>
#include <string.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

namespace shoal::trace {
namespace {

/// This process's side of its buffer.
class Writer {
 public:
  void write(TraceRecord& record, std::string_view name) {
    std::atomic<std::uint64_t>& word = SessionCore::current().layout().tracing;
    const TraceSwitch seen{word.load(std::memory_order_acquire)};     // acquire: the tracer is there before it traces
    if (!seen || seen.tracer() == Session::current().self()) return;  // who traces is no part of the picture
    if (seen.is_over(record.end)) {
      end_of(seen);
      return;
    }
    record.thread = activity::thread();
    std::memset(record.name, 0, sizeof record.name);
    name.copy(record.name, sizeof record.name - 1);
    std::lock_guard lock(mutex_);
    if (!buffer_ || buffer_->tracer != seen.tracer().word()) make(seen);
    if (!buffer_) return;
    const std::uint64_t written =
        buffer_->written.load(std::memory_order_relaxed);  // relaxed: only this process writes
    // A1: pairs with R1 in Tracer::drain: the place was read before it is used again.
    if (written - buffer_->drained.load(std::memory_order_acquire) >= TraceBuffer::kRecords) {
      buffer_->lost.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
      return;
    }
    buffer_->records[written % TraceBuffer::kRecords] = record;
    SHOAL_KILL_POINT("trace.write.recorded");
    buffer_->written.store(written + 1, std::memory_order_release);  // R2: the record before; A2 in Tracer::drain
  }

  void let_go() {
    if (!has_buffer_.load(std::memory_order_relaxed)) return;  // relaxed: who sees it late lets go the next time
    std::atomic<std::uint64_t>& word = SessionCore::current().layout().tracing;
    TraceSwitch seen{word.load(std::memory_order_acquire)};  // acquire: as in write
    if (seen && seen.is_over(activity::now())) {
      end_of(seen);
      seen = {};
    }
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || !buffer_ || buffer_->tracer == seen.tracer().word()) return;
    const auto tracer = ProcessTag::from_word(buffer_->tracer);
    drop_buffer();
    lock.unlock();
    // One that was killed holds it too, and nobody else may be looking for it.
    if (!Session::current().is_alive(tracer)) SessionCore::current().reclaim(tracer);
  }

 private:
  static void end_of(TraceSwitch seen) {
    SessionCore::current().layout().tracing.compare_exchange_strong(seen.word, 0);
  }

  void drop_buffer() {
    SessionCore& session = SessionCore::current();
    session.activity(session.self().slot()).trace.store(0);
    buffer_ = nullptr;
    has_buffer_.store(false, std::memory_order_relaxed);  // relaxed: see let_go
    hold_.release();
  }

  void make(TraceSwitch seen) {
    if (buffer_) drop_buffer();
    if (std::exchange(refused_by_, seen.tracer().word()) == seen.tracer().word()) return;  // it failed before
    SessionCore& session = SessionCore::current();
    Hold hold = allocate_shared(sizeof(TraceBuffer));
    auto* buffer = reinterpret_cast<TraceBuffer*>(hold.data());
    std::memset(static_cast<void*>(buffer), 0, offsetof(TraceBuffer, records));
    buffer->magic = TraceBuffer::kMagic;
    buffer->version = TraceBuffer::kVersion;
    buffer->owner = session.self().word();
    buffer->tracer = seen.tracer().word();
    buffer->pid = ::getpid();
    std::memcpy(buffer->name, session.record(session.self().slot()).name, sizeof buffer->name);
    // Release: whoever finds the type finds the rest.
    session.heap().memory().header(hold.block()).type.store(BlockType::kTrace, std::memory_order_release);
    SHOAL_KILL_POINT("trace.make.typed");
    const HoldRef tracers = session.heap().add_hold(hold.block(), seen.tracer().word());
    SHOAL_KILL_POINT("trace.make.held");
    // A tracer that ends sets the word first and then looks for its holds; one that died is reclaimed. If either was
    // before this hold, nobody would clear it: so it is taken back. seq_cst, as the tracer's store and its look.
    const TraceSwitch now{session.layout().tracing.load(std::memory_order_seq_cst)};
    if (now.tracer() != seen.tracer() || !session.is_alive(seen.tracer())) {
      session.heap().drop(tracers);
      end_of(now.tracer() == seen.tracer() ? now : TraceSwitch{});
      return;
    }
    hold_ = std::move(hold);
    buffer_ = buffer;
    refused_by_ = 0;
    has_buffer_.store(true, std::memory_order_relaxed);  // relaxed: see let_go
    session.activity(session.self().slot()).trace.store(hold_.block().value, std::memory_order_release);
  }

  std::mutex mutex_;
  Hold hold_;
  TraceBuffer* buffer_ = nullptr;
  std::uint32_t refused_by_ = 0;  // tag of a tracer for which no buffer could be made
  std::atomic<bool> has_buffer_{false};
};

/// Threads may write until the end.
constinit OnePerProcess<Writer> the_writer;

/// What is done to write an event writes none itself.
constinit thread_local bool inside = false;
struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
};

[[gnu::init_priority(101)]] const AtFork at_fork({
    // The hold on the buffer is the parent's.
    .in_child =
        []() noexcept {
          the_writer.forget();
          inside = false;
        },
});

}  // namespace

std::uint64_t now() noexcept { return activity::now() | 1; }

void write(TraceKind kind, std::uint64_t start, std::uint64_t end, std::string_view name, std::uint64_t subject,
           std::uint64_t link, std::uint64_t value) noexcept {
  if (inside) return;
  const Inside guard;
  try {
    TraceRecord record{start, end, subject, link, value, kind, 0, {}};
    the_writer.get().write(record, name);
  } catch (const std::exception&) {
    // No memory for a buffer: this process is missing in the trace, and nothing else.
  }
}

void let_go() noexcept {
  Writer* there = the_writer.if_there();
  if (!there || inside) return;
  const Inside guard;
  try {
    there->let_go();
  } catch (const std::exception&) {
    // The next one does it.
  }
}

}  // namespace shoal::trace
