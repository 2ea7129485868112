// What does a lock cost that nobody else wants, and how does it do when several processes want it all the time? Beside
// std::mutex (which cannot cross), a robust pthread mutex, Boost's interprocess_mutex and Python's
// multiprocessing.Lock.
#include <shoal/ipc/lock.h>

#include <errno.h>
#include <fmt/format.h>
#include <pthread.h>
#include <shoal/ipc/array.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/rlock.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>

#include <algorithm>
#include <boost/interprocess/sync/interprocess_mutex.hpp>
#include <mutex>
#include <new>

#include "bench/report/report.h"

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Boost = boost::interprocess::interprocess_mutex;

/// A mutex that is shared between processes and tells of a dead owner, as POSIX has it.
class RobustMutex {
 public:
  RobustMutex() {
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&mutex_, &attributes);
    ::pthread_mutexattr_destroy(&attributes);
  }
  void lock() {
    if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
  }
  void unlock() { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

/// Room in shared memory for whatever mutex lies there.
struct alignas(64) Room {
  unsigned char bytes[64];
};
static_assert(sizeof(RobustMutex) <= sizeof(Room) && sizeof(Boost) <= sizeof(Room));

/// A Mutex made in there.
template <class Mutex>
class InRoom {
 public:
  explicit InRoom(shoal::Array<Room> room) : room_(std::move(room)) {}
  static shoal::Array<Room> make() {
    shoal::Array<Room> room(1);
    new (room.data()) Mutex;
    return room;
  }
  void lock() { mutex().lock(); }
  void unlock() { mutex().unlock(); }

 private:
  Mutex& mutex() { return *std::launder(reinterpret_cast<Mutex*>(room_.data())); }
  shoal::Array<Room> room_;
};

/// ns of a lock and an unlock, each sample the mean of many.
template <class Mutex>
std::vector<double> uncontended(Mutex& mutex) {
  constexpr int kSamples = 50, kEach = 50'000;
  std::vector<double> samples;
  for (int i = -2; i < kSamples; ++i) {
    double took = shoal::bench::seconds([&] {
      for (int k = 0; k < kEach; ++k) {
        mutex.lock();
        mutex.unlock();
      }
    });
    if (i >= 0) samples.push_back(took * 1e9 / kEach);
  }
  return samples;
}

/// What one process had of a mutex that others wanted too.
struct Share {
  std::int64_t locks = 0;
  double longest_turn = 0;  // s, from one lock to the next
};

constexpr Seconds kDuration{0.7};

/// What a process does with the lock: nothing to speak of, or something for `hold`. It wants it back at once.
struct Work {
  std::chrono::microseconds hold{0};
};

template <class Mutex>
Share contend(Mutex mutex, Work work, shoal::Array<std::int64_t>& counter, shoal::Barrier& start) {
  Share share;
  start.wait();
  const auto begin = Clock::now();
  for (auto now = begin; Seconds(now - begin) < kDuration; ++share.locks) {
    mutex.lock();
    ++counter[0];
    if (work.hold.count() > 0)
      for (auto since = Clock::now(); Clock::now() - since < work.hold;) {
      }
    mutex.unlock();
    const auto then = std::exchange(now, Clock::now());
    share.longest_turn = std::max(share.longest_turn, Seconds(now - then).count());
  }
  return share;
}

Share contend_shoal(int, Work work, shoal::Lock lock, shoal::Array<std::int64_t> counter, shoal::Barrier start) {
  return contend(lock, work, counter, start);
}
Share contend_robust(int, Work work, shoal::Array<Room> room, shoal::Array<std::int64_t> counter,
                     shoal::Barrier start) {
  return contend(InRoom<RobustMutex>(room), work, counter, start);
}
Share contend_boost(int, Work work, shoal::Array<Room> room, shoal::Array<std::int64_t> counter, shoal::Barrier start) {
  return contend(InRoom<Boost>(room), work, counter, start);
}

template <class Function, class Mutex>
void contended(shoal::bench::Report& report, const char* impl, int processes, Work work, Function function,
               const Mutex& mutex) {
  std::vector<double> rates, slowest, longest;
  for (int i = 0; i < 3; ++i) {
    shoal::Array<std::int64_t> counter(1);
    shoal::Barrier start(processes);
    std::vector<Share> shares = shoal::spawn({.nprocs = processes}, function, work, mutex, counter, start);
    auto by_locks = [](const Share& a, const Share& b) { return a.locks < b.locks; };
    auto by_turn = [](const Share& a, const Share& b) { return a.longest_turn < b.longest_turn; };
    rates.push_back(double(counter[0]) / kDuration.count());
    slowest.push_back(double(std::min_element(shares.begin(), shares.end(), by_locks)->locks) / kDuration.count());
    longest.push_back(std::max_element(shares.begin(), shares.end(), by_turn)->longest_turn * 1e3);
  }
  const std::string who = fmt::format("{} processes, {} us each: ", processes, work.hold.count());
  report.add(impl, who + "all", "locks/s", rates);
  report.add(impl, who + "slowest", "locks/s", slowest);
  report.add(impl, who + "longest turn", "ms", longest);
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("lock");
  const char* alone = "lock and unlock, uncontended";
  {
    shoal::Lock lock;
    report.add("shoal", alone, "ns", uncontended(lock));
    shoal::RLock recursive;
    report.add("shoal RLock", alone, "ns", uncontended(recursive));
    shoal::BoundedSemaphore semaphore(1);
    report.add("shoal BoundedSemaphore(1)", alone, "ns", uncontended(semaphore));
    std::mutex local;
    report.add("std::mutex", alone, "ns", uncontended(local));
    InRoom<RobustMutex> robust(InRoom<RobustMutex>::make());
    report.add("pthread, shared and robust", alone, "ns", uncontended(robust));
    InRoom<Boost> boost(InRoom<Boost>::make());
    report.add("boost interprocess_mutex", alone, "ns", uncontended(boost));
  }
  using std::chrono::microseconds;
  for (auto [processes, hold] : {std::pair{2, microseconds(0)}, {8, microseconds(0)}, {8, microseconds(200)}}) {
    const Work work{hold};
    contended(report, "shoal", processes, work, contend_shoal, shoal::Lock());
    contended(report, "pthread, shared and robust", processes, work, contend_robust, InRoom<RobustMutex>::make());
    contended(report, "boost interprocess_mutex", processes, work, contend_boost, InRoom<Boost>::make());
  }
  report.run_peer("ipc/lock");
}
