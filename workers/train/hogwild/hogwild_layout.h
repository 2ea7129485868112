// How an optimizer that processes share lies in shared memory. Pictured in docs/hogwild.md.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/sync/lock_word.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal::hogwild {

enum class Rule : std::uint32_t { sgd, adam, adamw, adagrad, rmsprop };

/// The options of a group of parameters, of whichever rule; a rule leaves out what it has no use for.
struct Numbers {
  double momentum = 0, dampening = 0, weight_decay = 0;
  double beta1 = 0, beta2 = 0, eps = 0;
  double alpha = 0, lr_decay = 0;
  double initial = 0;  // of all elements of the state
  std::uint32_t nesterov = 0, amsgrad = 0, centered = 0, maximize = 0;
};

static_assert(sizeof(Numbers) == 88);

struct GroupRecord {
  std::atomic<double> lr;  // anyone writes it at any time; relaxed: one number, and nothing else depends on it
  Numbers numbers;
};

static_assert(sizeof(GroupRecord) == 96);
static_assert(std::atomic<double>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

/// One process that is waited for. Only that process writes to it, and whoever takes the place of a dead one.
struct alignas(64) ParticipantRecord {
  /// The process's tag; in transit while it comes and its clock says nothing yet; 0: free.
  std::atomic<std::uint32_t> tag;
  std::atomic<std::int32_t> pid;
  std::atomic<std::int64_t> clock;  // steps that it has done, counted from where the slowest was when it came
};

static_assert(sizeof(ParticipantRecord) == 64);

/// The lock of a stripe, in a cache line of its own.
struct alignas(64) StripeRecord {
  LockWord lock;
};

static_assert(sizeof(StripeRecord) == 64);

/// Start of the optimizer's block.
///
///   | HogwildLayout | GroupRecord per group | count of steps per parameter | ParticipantRecords | StripeRecords |
struct HogwildLayout {
  static constexpr std::uint32_t kMagic = 0x77676f68;  // "hogw"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint32_t kMostParticipants = 1024;
  static constexpr std::int64_t kUnbounded = -1;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t rule;
  std::uint32_t locking;
  std::uint64_t group_count;
  std::uint64_t parameter_count;
  std::uint64_t stripe_count;
  std::uint64_t stripe_bytes;
  std::int64_t staleness_bound;
  std::int64_t timeout;    // ns
  double clip_grad_value;  // negative: none
  double clip_grad_norm;   // negative: none
  double clip_grad_norm_type;
  std::uint64_t counts;  // positions, from the start of this
  std::uint64_t participants;
  std::uint64_t stripes;

  alignas(64) std::atomic<std::int64_t> begun;     // steps, of all processes
  alignas(64) std::atomic<std::int64_t> finished;  // the same
  alignas(64) EventWord clock_changed;             // notified after a clock or a tag of a participant changes
  std::atomic<std::uint32_t> participants_used;    // those from this index on were never used

  GroupRecord& group(std::size_t index) { return reinterpret_cast<GroupRecord*>(this + 1)[index]; }
  std::atomic<std::int64_t>& count(std::size_t parameter) {
    return reinterpret_cast<std::atomic<std::int64_t>*>(at(counts))[parameter];
  }
  ParticipantRecord& participant(std::size_t index) {
    return reinterpret_cast<ParticipantRecord*>(at(participants))[index];
  }
  StripeRecord& stripe(std::size_t index) { return reinterpret_cast<StripeRecord*>(at(stripes))[index]; }

 private:
  std::byte* at(std::uint64_t place) { return reinterpret_cast<std::byte*>(this) + place; }
};

static_assert(sizeof(HogwildLayout) == 320);

}  // namespace shoal::hogwild
