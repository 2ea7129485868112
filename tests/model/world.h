// A world for locks, conditions and barriers under the model checker: sleep, time and death, of which it says when.
//
// Each thread of a model is a process. Sleep that in processes ends after some time, to look after the dead (a nap of
// LivenessWatch, which is kLivenessSlice here), does not end by itself here while all live: a lost wake-up is a
// deadlock, which relacy reports. Every other time-out may come at any moment, and the clock stands still but for those
// that sleep.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/process_tag.h>

#include <array>
#include <chrono>

#include "tests/model/model.h"

namespace shoal::model {

/// What the kernel knows. One in each model, begun by before().
class Kernel {
 public:
  static constexpr unsigned kMostParties = 6;  // and one slot more, for after()
  static inline Kernel* current = nullptr;

  void begin() {
    current = this;
    death = other_death = {};
    for (auto& seen : death_seen_) seen.store(0, rl::mo_relaxed, $);
  }

  template <class Word>
  void wait(const Word& word, std::uint32_t expected, std::chrono::nanoseconds at_most) {
    step();  // it may die in place of falling asleep
    if (at_most.count() <= 0) return;
    bucket_.lock($);
    Place& place = place_of(&word);
    if (word.look() == expected) {
      // In naps, which end by themselves only to find a dead one.
      const bool ends_by_itself = at_most != kLivenessSlice || somebody_died_;
      const bool timed_out = place.sleepers.wait(bucket_, ends_by_itself);
      if (timed_out)
        now_ += at_most;
      else if (rl::rand(2) != 0)
        now_ += std::chrono::milliseconds(2);
    }
    bucket_.unlock($);
  }
  template <class Word>
  void wake(const Word& word, int count) {
    step();
    bucket_.lock($);
    if (count == 1)
      place_of(&word).sleepers.wake_one();
    else
      place_of(&word).sleepers.wake_all();
    bucket_.unlock($);
  }

  /// By the thread that stops for ever. Those that sleep look up, as they do by themselves after their naps.
  void died(unsigned index) {
    death_seen_[index].fetch_add(1, rl::mo_release, $);
    dead_[index] = true;
    bucket_.lock($);
    somebody_died_ = true;
    for (Place& place : places_) place.sleepers.wake_all();
    bucket_.unlock($);
  }
  bool is_dead(ProcessTag tag) {
    const unsigned index = index_of(tag);
    if (!dead_[index]) return false;
    death_seen_[index].fetch_add(0, rl::mo_acquire, $);  // what it did lies before its end
    return true;
  }
  /// Of the calling thread.
  bool is_dead() { return dead_[rl::ctx().current_thread()]; }

  std::chrono::nanoseconds now() const { return now_; }

  static ProcessTag tag(unsigned index) { return ProcessTag(index + 1, 1); }
  static unsigned index_of(ProcessTag tag) { return tag.slot() - 1; }
  /// In after(), which no thread of the model runs.
  void act_as_another() { acts_as_another_ = true; }
  ProcessTag self() const { return tag(acts_as_another_ ? kMostParties : unsigned(rl::ctx().current_thread())); }

 private:
  /// relacy's condition variable without spurious wake-ups, which would hide lost ones.
  struct Sleepers {
    struct Tag;
    rl::condvar<Tag> queue;
    Sleepers() { queue.init(false, $); }
    ~Sleepers() { queue.deinit($); }
    bool wait(rl::mutex& bucket, bool ends_by_itself) {
      return queue.wait(bucket, ends_by_itself, $) == rl::sema_wakeup_reason_timeout;
    }
    void wake_one() { queue.notify_one($); }
    void wake_all() { queue.notify_all($); }
  };
  struct Place {
    const void* word = nullptr;
    Sleepers sleepers;
  };
  Place& place_of(const void* word) {
    for (Place& place : places_) {
      if (!place.word) place.word = word;
      if (place.word == word) return place;
    }
    RL_ASSERT(false);
    return places_[0];
  }

  rl::mutex bucket_;
  std::array<Place, 6> places_;
  std::array<rl::atomic<int>, kMostParties + 1> death_seen_;
  std::array<bool, kMostParties + 1> dead_{};  // the model runs in one thread: seen by all
  bool somebody_died_ = false;
  std::chrono::nanoseconds now_ = std::chrono::milliseconds(1);  // zero means something to LockWait
  bool acts_as_another_ = false;
};

struct ModelFutex {
  template <class Word>
  static void wait(const Word& word, std::uint32_t expected, std::chrono::nanoseconds at_most) {
    Kernel::current->wait(word, expected, at_most);
  }
  template <class Word>
  static void wake(const Word& word, int count) {
    Kernel::current->wake(word, count);
  }
};

struct ModelClock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<ModelClock>;
  static time_point now() { return time_point(Kernel::current->now()); }
};

/// As shoal::Deadline, by the model's clock.
class ModelDeadline {
 public:
  static ModelDeadline never() { return ModelDeadline(ModelClock::time_point::max()); }
  static ModelDeadline now() { return ModelDeadline(ModelClock::time_point::min()); }
  static ModelDeadline soon() { return ModelDeadline(ModelClock::now() + std::chrono::milliseconds(3)); }
  bool passed() const { return at_ <= ModelClock::now(); }
  std::chrono::nanoseconds left(std::chrono::nanoseconds at_most) const {
    if (passed()) return std::chrono::nanoseconds(0);
    return std::min(at_most, at_ - ModelClock::now());
  }

 private:
  explicit ModelDeadline(ModelClock::time_point at) : at_(at) {}
  ModelClock::time_point at_;
};

template <template <class> class A>
struct ModelWorld {
  template <class T>
  using Atomic = A<T>;
  using Futex = ModelFutex;
  using EventWord = BasicEventWord<A, ModelFutex>;
  using Deadline = ModelDeadline;
  using Clock = ModelClock;
  struct Spinner {
    bool turn() { return false; }
    void ended(bool) {}
  };
  struct SleepNote {
    void asleep_on(const void*) {}
  };
  struct LivenessWatch {
    std::chrono::milliseconds nap() const { return kLivenessSlice; }
    void woke() {}
  };

  static ProcessTag self() { return Kernel::current->self(); }
  static std::uint32_t thread() { return 1; }
  static bool is_alive(ProcessTag tag) { return !Kernel::current->is_dead(tag); }
};

}  // namespace shoal::model
