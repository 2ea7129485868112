#include <shoal/ipc/session.h>
#include <shoal/ipc/session/activity.h>
#include <shoal/ipc/session/layout.h>
#include <shoal/ipc/sync/thread_number.h>
#include <shoal/ipc/trace/span.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

namespace shoal {
namespace {

using Wait = ActivityRecord::Wait;

/// Whole characters of UTF-8 that fit into a label.
std::string_view fitting(std::string_view text) {
  constexpr std::size_t kMost = ActivityRecord::kLabelBytes - 1;
  if (text.size() <= kMost) return text;
  std::size_t size = kMost;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

}  // namespace

// Whoever reads these records does so from outside, by copies of the bytes. The orders below are for the sake of such a
// copy: on the way to memory no store overtakes the one that says that it is valid.

void set_label(std::string_view text) {
  Session& session = Session::current();
  ActivityRecord& record = session.activity(session.self().slot());
  std::uint64_t words[ActivityRecord::kLabelBytes / 8] = {};
  const std::string_view label = fitting(text);
  std::memcpy(words, label.data(), label.size());
  std::uint32_t changes = record.label_changes.load(std::memory_order_relaxed);  // relaxed: the CAS decides
  // Odd: another thread is at it, and this one's label counts as the earlier one.
  if ((changes & 1) != 0 || !record.label_changes.compare_exchange_strong(changes, changes + 1)) return;
  // release: after the odd count, and before the even one.
  for (std::size_t i = 0; i < std::size(words); ++i) record.label[i].store(words[i], std::memory_order_release);
  record.label_changes.store(changes + 2, std::memory_order_release);  // release: after the label
}

void SleepNote::begin(const void* word) {
  since_ = activity::now();
  Session& session = Session::current();
  const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(word) - session.base());
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

namespace activity {

void begin(ActivityRecord& record, ProcessTag owner) noexcept {
  record.owner.store(0);
  record.label_changes.store(0);
  record.trace.store(0);
  for (auto& word : record.label) word.store(0);
  for (Wait& wait : record.waits) {
    wait.word.store(0);
    wait.thread.store(0);
  }
  record.owner.store(owner.word());
}

std::uint32_t thread() noexcept {
  // The system call is the most expensive part of a note. In a forked child the thread is another one.
  thread_local std::uint32_t known = 0, forks = 0;
  const std::uint32_t now = Session::current().fork_count();
  if (known == 0 || forks != now) {
    known = std::uint32_t(::syscall(SYS_gettid));
    forks = now;
  }
  return known;
}

std::uint64_t now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::uint64_t(time.tv_sec) * 1'000'000'000 + std::uint64_t(time.tv_nsec);
}

}  // namespace activity

}  // namespace shoal
