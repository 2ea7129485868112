#include <shoal/internal/ipc/process/death_watch.h>

#include <errno.h>
#include <sched.h>
#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/own_file.h>
#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/fork/at_fork.h>
#include <shoal/internal/ipc/fork/one_per_process.h>
#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/liveness.h>
#include <shoal/internal/ipc/process/liveness_watch.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/fd.h>
#include <shoal/ipc/log.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace shoal {
namespace {

// In ms.
constexpr int kRenew = kLivenessSlice.count();
constexpr int kFirstRetry = 1;
constexpr std::uint32_t kClaim = 250;
constexpr std::uint32_t kFurthestClaim = 1000;  // nobody claims for longer: a later time is another clock's

/// A word of SessionLayout::sentries. Times are the low bits of CLOCK_MONOTONIC in ms, which turn over after 49 days.
using Owner = BitField<0, 32>;
using Until = BitField<Owner::kEnd, 32>;

// relaxed, for these words: one decides who makes system calls, and passes nothing on. What a sentry finds is passed on
// by the words that reclaim changes.
constexpr auto kSentryOrder = std::memory_order_relaxed;

std::uint32_t low_ms_now() {
  using namespace std::chrono;
  return std::uint32_t(duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
}

bool claim_passed(std::uint64_t word, std::uint32_t now) {
  const std::uint32_t left = std::uint32_t(Until::of(word)) - now;
  return word == 0 || left == 0 || left > kFurthestClaim;
}

/// Whether the place is anybody's: nobody has it, or nobody does what whoever has it should.
bool is_free(SessionCore& session, std::uint64_t word, std::uint32_t now) {
  return claim_passed(word, now) || !counts_as_alive(session, ProcessTag::from_word(std::uint32_t(Owner::of(word))));
}

std::uint64_t claim_of(ProcessTag self) { return Owner::make(self.word()) | Until::make(low_ms_now() + kClaim); }

constinit std::mutex mutex;  // of what a sentry has, and of whether there is one; forks wait for it

/// This process's sentry.
class Sentry {
 public:
  /// True if it is there, or cannot be.
  bool is_settled() const noexcept { return runs_.load(kSentryOrder) || unable_.load(kSentryOrder); }

  /// Takes the place from whoever had it as `seen`, and starts the thread. With the mutex.
  void start(SessionCore& session, std::size_t place, std::uint64_t seen) {
    if (is_settled()) return;
    if (thread_.joinable()) thread_.join();  // it has ended
    ends_.store(false, kSentryOrder);
    events_ = OwnFile(lift(Fd(::epoll_create1(EPOLL_CLOEXEC))), "a sentry's epoll");
    end_ = OwnFile(lift(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))), "a sentry's eventfd");
    epoll_event entry{};
    entry.events = EPOLLIN;
    const int events = events_.descriptor_if_open(), end = end_.descriptor_if_open();
    const bool ready = events >= 0 && end >= 0 && ::epoll_ctl(events, EPOLL_CTL_ADD, end, &entry) == 0;
    const std::uint64_t mine = claim_of(session.self());
    if (!ready || !session.layout().sentries[place].compare_exchange_strong(seen, mine, kSentryOrder)) {
      close();
      return;
    }
    runs_.store(true, kSentryOrder);
    place_ = place;
    mine_ = mine;
    try {
      thread_ = make_service_thread("shoal-deaths", [this, &session] { run(session); });
    } catch (const std::exception&) {
      runs_.store(false, kSentryOrder);
      close();
    }
  }

  /// With the mutex: tells the thread to end, and hands it to the caller, who waits for it without the mutex.
  std::thread stop() {
    ends_.store(true, kSentryOrder);  // seen at the next renewal, if the program has closed the eventfd
    wake();
    return std::exchange(thread_, {});
  }

  /// Of the last thread that ran, as gettid().
  pid_t number() const noexcept { return number_.load(kSentryOrder); }  // relaxed: see run()

  /// In a fork's child, which has copies of the descriptors and no thread.
  void close_copies() noexcept {
    close();
    new (&thread_) std::thread;
  }

 private:
  struct Watched {
    std::uint32_t tag;
    OwnFile process;  // none: it cannot be watched
  };

  void wake() const noexcept {
    const std::uint64_t one = 1;
    if (const int end = end_.descriptor_if_open(); end >= 0) (void)!::write(end, &one, sizeof one);
  }

  void close() noexcept {
    watched_.clear();
    gone_.clear();
    events_.reset();
    end_.reset();
  }

  void run(SessionCore& session) {
    number_.store(::gettid(), kSentryOrder);  // relaxed: read when the thread has been waited for
    bool goes_on = true;
    while (goes_on && !ends_.load(kSentryOrder) && renew(session)) {
      refresh(session);
      goes_on = wait();
      reclaim_gone(session);
    }
    std::lock_guard lock(mutex);
    std::uint64_t mine = mine_;
    session.layout().sentries[place_].compare_exchange_strong(mine, 0, kSentryOrder);
    close();
    runs_.store(false, kSentryOrder);
  }

  /// False if another process has taken the place meanwhile.
  bool renew(SessionCore& session) {
    auto& sentries = session.layout().sentries;
    const std::uint64_t next = claim_of(session.self());
    std::uint64_t first = sentries[0].load(kSentryOrder);
    if (place_ != 0 && is_free(session, first, low_ms_now()) &&
        sentries[0].compare_exchange_strong(first, next, kSentryOrder)) {
      std::uint64_t mine = mine_;
      sentries[place_].compare_exchange_strong(mine, 0, kSentryOrder);
      place_ = 0;
      mine_ = next;
      return true;
    }
    std::uint64_t mine = mine_;
    if (!sentries[place_].compare_exchange_strong(mine, next, kSentryOrder)) return false;
    mine_ = next;
    return true;
  }

  /// Sees to it that it sleeps on those that it should.
  void refresh(SessionCore& session) {
    std::lock_guard lock(mutex);
    std::erase_if(watched_, [&](auto& entry) { return !is_wanted(session, ProcessTag::from_word(entry.second.tag)); });
    const std::size_t most = most_descriptors();
    for (std::uint32_t slot = 0, end = session.layout().slots_touched.load(); slot < end; ++slot) {
      const ProcessRecord& record = session.record(slot);
      if (ProcessRecord::state_of(record.state.load()) != ProcessRecord::kAlive || watched_.contains(slot)) continue;
      const ProcessTag tag(slot, record.generation.load());
      if (!is_wanted(session, tag)) continue;
      if (watched_.size() >= most || !watch(session, tag)) break;
    }
  }

  bool is_wanted(SessionCore& session, ProcessTag tag) const {
    if (tag == session.self()) return false;
    if (place_ != 0 && Owner::of(session.layout().sentries[0].load(kSentryOrder)) != tag.word()) return false;
    return counts_as_alive(session, tag);
  }

  static std::size_t most_descriptors() {
    constexpr std::size_t kMost = 1024;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
    return std::min<std::size_t>(kMost, limit.rlim_cur / 4);
  }

  /// False if there are no more descriptors, or none at all.
  bool watch(SessionCore& session, ProcessTag tag) {
    const ProcessRecord& record = session.record(tag.slot());
    if (!is_own_pid_space(record.pid_space.load())) {
      watched_[tag.slot()] = {tag.word(), OwnFile()};  // left to looks
      return true;
    }
    const std::int32_t pid = record.pid.load();
    Fd process = lift(Fd(int(::syscall(SYS_pidfd_open, pid, 0))));  // CLOEXEC by itself
    if (!process && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) return false;
    if (!process && (errno == ENOSYS || errno == EPERM)) {
      unable_.store(true, kSentryOrder);
      wake();
      return false;
    }
    // A process of that pid was there when the tag's took its slot, and is after it was opened: it is that one.
    epoll_event entry{};
    entry.events = EPOLLIN;
    entry.data.u64 = tag.word();
    if (!process || !process_exists(pid, record.taken_at.load())) {
      process.reset();
      gone_.push_back(tag);  // it died before it was watched
      retry_ = 0;
    } else if (::epoll_ctl(events_.descriptor_if_open(), EPOLL_CTL_ADD, process.get(), &entry) != 0) {
      process.reset();
    }
    watched_[tag.slot()] = {tag.word(), OwnFile(std::move(process), "a process that a sentry watches")};
    return true;
  }

  /// Sleeps until it is time to renew, or one has ended. False if this process takes part no longer, or the program has
  /// closed the descriptors: then the next one that waits starts another sentry.
  bool wait() {
    epoll_event events[16];
    const int timeout = gone_.empty() ? kRenew : retry_;
    const int count = ::epoll_wait(events_.descriptor_if_open(), events, std::size(events), timeout);
    if (count < 0 && errno != EINTR) return false;
    for (int i = 0; i < count; ++i) {
      const auto tag = ProcessTag::from_word(std::uint32_t(events[i].data.u64));
      if (!tag) return false;
      {
        // Not again, whatever comes of it.
        std::lock_guard lock(mutex);
        if (const auto entry = watched_.find(tag.slot()); entry != watched_.end() && entry->second.tag == tag.word())
          entry->second.process.reset();
      }
      gone_.push_back(tag);
      retry_ = 0;
    }
    return true;
  }

  /// A process of several threads is told of when its first one has ended. Until the last one has, it has its lock and
  /// counts as alive: then it is looked at again, soon, and ever less often, since the first thread may end alone.
  void reclaim_gone(SessionCore& session) {
    for (const ProcessTag tag : gone_) reclaim(session, tag);
    std::erase_if(gone_, [&](ProcessTag tag) { return !session.is_alive(tag); });
    retry_ = std::clamp(2 * retry_, kFirstRetry, kRenew);
  }

  static void reclaim(SessionCore& session, ProcessTag tag) {
    try {
      session.reclaim(tag);  // does nothing if it lives after all
    } catch (const std::exception& error) {
      log_warning("giving back what a dead process had: {}; whoever looks next tries again", error.what());
    }
  }

  std::atomic<bool> runs_{false}, unable_{false}, ends_{false};
  std::atomic<pid_t> number_{0};
  std::thread thread_;
  // With the mutex, but for those that the thread alone changes and reads.
  OwnFile events_, end_;
  std::map<std::uint32_t, Watched> watched_;  // by slot
  std::vector<ProcessTag> gone_;              // told of, and not given back yet
  int retry_ = 0;                             // ms until they are looked at again
  std::size_t place_ = 0;
  std::uint64_t mine_ = 0;
};

constinit OnePerProcess<Sentry> the_sentry;
constinit std::atomic<int> parts{0};

[[gnu::init_priority(101)]] const AtFork at_fork({
    .before = ForkWaitsFor<mutex>::lock,
    .in_parent = ForkWaitsFor<mutex>::unlock,
    .in_child =
        []() noexcept {
          new (&mutex) std::mutex;
          parts = 0;
          if (Sentry* parents = the_sentry.if_there()) parents->close_copies();
          the_sentry.forget();
        },
});

}  // namespace

DeathWatch::DeathWatch() : fork_count_(fork_count()) {
  parts.fetch_add(1, kSentryOrder);  // relaxed: a count
  tend(SessionCore::current());
}

DeathWatch::~DeathWatch() {
  if (fork_count() != fork_count_ || parts.fetch_sub(1, kSentryOrder) > 1) return;  // relaxed: a count
  Sentry* sentry = the_sentry.if_there();
  if (!sentry) return;
  std::thread ends;
  {
    std::lock_guard lock(mutex);
    if (parts.load(kSentryOrder) == 0) ends = sentry->stop();  // relaxed: a count
  }
  if (!ends.joinable()) return;
  ends.join();
  // The kernel lists it for some us more, and a fork at that moment would find a thread that is nobody's. Not for ever:
  // another thread may have started the next one.
  constexpr int kMostLooks = 1000;
  for (int i = 0; i < kMostLooks && ::syscall(SYS_tgkill, ::getpid(), sentry->number(), 0) == 0; ++i) ::sched_yield();
}

void DeathWatch::tend(SessionCore& session) noexcept {
  if (parts.load(kSentryOrder) == 0) return;  // relaxed: a count
  Sentry* there = the_sentry.if_there();
  if (there && there->is_settled()) return;
  auto& sentries = session.layout().sentries;
  const std::uint32_t now = low_ms_now();
  for (std::size_t place = 0; place < SessionLayout::kSentries; ++place) {
    const std::uint64_t seen = sentries[place].load(kSentryOrder);
    if (!is_free(session, seen, now)) continue;
    try {
      Sentry& sentry = the_sentry.get();
      std::unique_lock lock(mutex, std::try_to_lock);
      if (lock) sentry.start(session, place, seen);
    } catch (const std::exception&) {
      // No memory for it: looks find the dead.
    }
    return;
  }
}

void wake_all_sleepers(SessionCore& session) noexcept {
  const std::uint64_t begin = session.layout().data, end = session.layout().bytes;
  for (std::uint32_t slot = 0, slots = session.layout().slots_touched.load(); slot < slots; ++slot) {
    if (ProcessRecord::state_of(session.record(slot).state.load()) != ProcessRecord::kAlive) continue;
    for (const ActivityRecord::Wait& wait : session.activity(slot).waits) {
      // relaxed: a hint, which may be late; and a wake-up on a word that nobody sleeps on is none.
      const std::uint64_t word = wait.word.load(std::memory_order_relaxed);
      if (word < begin || word >= end || word % sizeof(std::uint32_t) != 0) continue;
      futex_wake(*reinterpret_cast<std::atomic<std::uint32_t>*>(session.base() + word), INT32_MAX);
    }
  }
}

}  // namespace shoal
