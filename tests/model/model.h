// What the model checker relacy needs to run shoal's own lock-free templates: an atomic with std's interface, a party
// that stops for ever at a chosen step, and one way to run a model. See docs/proofs.md.
//
// Included after everything else: relacy defines macros for `new`, `assert` and the memory orders.
#pragma once

#include <atomic>
#include <cstdint>
#include <sstream>
#include <string>
#include <type_traits>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

// clang-format off: in this order
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
#include <relacy/base.hpp>
#include <relacy/thread_local_ctx.hpp>
#include <relacy/context_base.hpp>
// relacy's global operator new takes memory from the execution's own pool, also for strings that outlive it: with a
// report to write it then crashes. This way it always uses malloc.
#define is_ctx() is_ctx() && false
#include <relacy/context.hpp>
#undef is_ctx
#include <relacy/relacy.hpp>
#pragma GCC diagnostic pop
// clang-format on
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

namespace shoal::model {

/// Thrown by an atomic of the party that is to die, in place of its next step.
struct Died {};

/// Which thread of the model dies, and before which of its steps on atomics.
struct Death {
  int thread = -1;
  unsigned steps_left = 0;
  int dead = -1;

  void step() {
    if (thread != int(rl::ctx().current_thread())) return;
    if (steps_left-- == 0) {
      dead = thread;
      thread = -1;
      throw Died{};
    }
  }
};
inline Death death;
inline Death other_death;  // where two die

inline void step() {
  death.step();
  other_death.step();
}

/// Whether the calling thread is dead: code that runs while Died is on its way does nothing then.
inline bool is_stopped() {
  const int self = int(rl::ctx().current_thread());
  return death.dead == self || other_death.dead == self;
}

/// How a model's atomics take the orders they are given. The weaker ones are planted faults: a model that does not
/// notice them proves nothing.
enum class Orders { kAsWritten, kNoSeqCst, kRelaxed };

template <Orders kOrders, bool kStore, bool kLoad>
rl::memory_order modelled(std::memory_order order) {
  if constexpr (kOrders == Orders::kRelaxed) return rl::mo_relaxed;
  switch (order) {
    case std::memory_order_relaxed:
      return rl::mo_relaxed;
    case std::memory_order_consume:
    case std::memory_order_acquire:
      return rl::mo_acquire;
    case std::memory_order_release:
      return rl::mo_release;
    case std::memory_order_acq_rel:
      return rl::mo_acq_rel;
    case std::memory_order_seq_cst:
      break;
  }
  if constexpr (kOrders == Orders::kAsWritten) return rl::mo_seq_cst;
  if constexpr (kStore && kLoad) return rl::mo_acq_rel;
  return kStore ? rl::mo_release : rl::mo_acquire;
}

/// std::atomic's interface on relacy's atomic.
template <class T, Orders kOrders>
class ModelAtomic {
 public:
  ModelAtomic() : ModelAtomic(T()) {}
  ModelAtomic(T value) { value_.store(value, rl::mo_relaxed, $); }

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    step();
    return value_.load(modelled<kOrders, false, true>(order), $);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    value_.store(value, modelled<kOrders, true, false>(order), $);
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    return value_.fetch_add(value, modelled<kOrders, true, true>(order), $);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    return value_.exchange(value, modelled<kOrders, true, true>(order), $);
  }
  T fetch_or(T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    return value_.fetch_or(value, modelled<kOrders, true, true>(order), $);
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    return value_.compare_exchange_strong(expected, value, modelled<kOrders, true, true>(order), $);
  }
  bool compare_exchange_weak(T& expected, T value, std::memory_order order = std::memory_order_seq_cst) {
    step();
    return value_.compare_exchange_weak(expected, value, modelled<kOrders, true, true>(order), $);
  }

  /// The kernel's look at it: no step of the party.
  T look() const { return value_.load(rl::mo_seq_cst, $); }

 private:
  rl::atomic<T> value_;
};

template <class T>
using AsWritten = ModelAtomic<T, Orders::kAsWritten>;
template <class T>
using NoSeqCst = ModelAtomic<T, Orders::kNoSeqCst>;
template <class T>
using Relaxed = ModelAtomic<T, Orders::kRelaxed>;

/// What a model's run came to.
struct Verdict {
  bool right;
  std::string report;  // where not right: every step of the execution that shows the fault
};

inline Verdict run(bool (*simulate)(rl::test_params&), rl::test_params& params) {
  std::ostringstream report, progress;
  params.output_stream = &report;
  params.progress_stream = &progress;
  death = other_death = {};
  bool right = simulate(params);
  return {right, report.str()};
}

/// `executions` by random schedules, times SHOAL_TEST_SCALE.
template <class Model>
Verdict at_random(unsigned executions) {
  rl::test_params params;
  params.search_type = rl::sched_random;
  params.iteration_count = rl::iteration_t(executions) * unsigned(test::test_scale());
  return run(&rl::simulate<Model>, params);
}

/// Every execution with at most `switches` thread switches other than those at which a thread ends or waits. For small
/// models only.
template <class Model>
Verdict every_with(unsigned switches) {
  rl::test_params params;
  params.search_type = rl::sched_bound;
  params.context_bound = switches;
  return run(&rl::simulate<Model>, params);
}

#define CHECK_RIGHT(...)                                    \
  do {                                                      \
    const ::shoal::model::Verdict verdict_ = (__VA_ARGS__); \
    INFO(verdict_.report);                                  \
    CHECK(verdict_.right);                                  \
  } while (false)

/// The fault must be found, and be this one (a word of relacy's report).
#define CHECK_FINDS(fault, ...)                             \
  do {                                                      \
    const ::shoal::model::Verdict verdict_ = (__VA_ARGS__); \
    CHECK_FALSE(verdict_.right);                            \
    CHECK_THAT(verdict_.report, ContainsSubstring(fault));  \
  } while (false)

}  // namespace shoal::model
