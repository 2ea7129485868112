// How a group of ranks lies in shared memory. Pictured in docs/collectives.md.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/layout/flight_record.h>
#include <shoal/internal/workers/train/group/forward_pass.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

enum class Collective : std::uint32_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  reduce,
  gather,
  scatter,
  barrier,
  all_to_all,        // how much goes from whom to whom
  all_to_all_parts,  // the parts themselves
  all_gather_object,
  gather_object,
  broadcast_object,
  scatter_object,
  refused,  // of `op`: this rank cannot take part, and its stage says why
  split,    // of ranks on several hosts
  all_reduce_sparse
};

/// What a rank says about the collective that it starts: the others compare it with their own, and
/// find its data by it.
struct Announcement {
  static constexpr std::uint32_t kPrivate = ~0u;  // in `buffer`: the data is not in the heap

  Collective what;
  std::uint32_t type;  // c10::ScalarType of the elements: Undefined, or all ones, if only bytes matter
  std::uint32_t op;    // ReduceOp; all ones for none
  std::int32_t root;   // -1 for none
  std::uint64_t bytes;
  std::uint64_t offset = 0;   // of the data in its buffer, and in its block
  std::uint32_t buffer = 0;   // which of this rank's registered buffers (see PeerBuffers)
  std::uint32_t letters = 0;  // letters about its buffers that this rank has sent to each other one
  std::uint64_t block = 0;    // of the heap, that the data lies in which the collective changes; 0 if there is none
  std::uint32_t once = 0;     // 1: `buffer` is empty again, for the owner and the others, when the collective is over
  std::uint32_t reserved = 0;
  ForwardPass pass = {};  // that it belongs to
};

static_assert(sizeof(Announcement) == 64);

/// One rank's part. Only that rank writes to it, so nothing here can be left half-done for another.
///
/// `round` is what it all hangs on. Every collective is a number of rounds, the same on all ranks. A rank
/// ends a round by storing its number (R1, a release, and seq_cst for the event word) and by waiting until
/// all others have (A1). So whoever is in round k+1 knows that all have finished what they did in round k:
///  I1 what a rank wrote before its R1 of round k can be read from A1 of round k on;
///  I2 it may be overwritten once everybody's R1 of the round in which the others read it was seen.
struct RankLayout {
  /// kGaveUp and kAborted are final: a rank that has waited too long, or was told to, breaks the group for all, also when
  /// it leaves later.
  enum State : std::uint32_t { kAbsent = 0, kJoined = 1, kLeft = 2, kGaveUp = 3, kAborted = 4 };
  static constexpr std::int32_t kNoCulprit = -1;

  alignas(64) std::atomic<std::uint32_t> round;  // wraps
  EventWord event;                               // notified after `round` and `state` change
  std::atomic<std::uint32_t> tag;                // ProcessTag of the process that joined as this rank
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> culprit;  // the rank whose death made this one leave, or that it gave up waiting for
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint32_t> cpus;     // that the rank can keep busy when it joins
  std::atomic<std::uint32_t> cpu_set;  // a hash of those that it may run on: ranks with the same one share them
  /// By parity of the round: an announcement made before round k is read during round k+1 at the latest.
  alignas(64) Announcement announcements[2];
};

static_assert(sizeof(RankLayout) == 192);
static_assert(offsetof(RankLayout, announcements) == 64);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Start of the group's block.
///
///   | GroupLayout | RankLayout per rank | staging: three chunks per rank | FlightLog per rank |
struct GroupLayout {
  static constexpr std::uint32_t kMagic = GroupHead::kMagic;
  static constexpr std::uint32_t kVersion = GroupHead::kVersion;
  static constexpr int kStages = 3;
  static constexpr std::uint32_t kLargestWorld = GroupHead::kLargestWorld;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t world_size;
  std::uint32_t first_round;  // where all counters start
  std::uint64_t chunk_bytes;  // of one stage
  std::uint64_t ranks;        // position of the first RankLayout, from the start of this
  std::uint64_t staging;      // position of rank 0's first stage
  std::uint64_t flights;      // position of rank 0's FlightLog
  std::uint64_t reserved[2];

  RankLayout& rank(int index) {
    return reinterpret_cast<RankLayout*>(reinterpret_cast<std::byte*>(this) + ranks)[index];
  }
  FlightLog& flight(int index) {
    return reinterpret_cast<FlightLog*>(reinterpret_cast<std::byte*>(this) + flights)[index];
  }
  /// Where a rank puts the chunk of a round.
  std::byte* stage(int index, std::uint32_t which) {
    return reinterpret_cast<std::byte*>(this) + staging + (std::uint64_t(index) * kStages + which) * chunk_bytes;
  }
};

static_assert(sizeof(GroupLayout) == 64);
static_assert(offsetof(GroupLayout, world_size) == offsetof(GroupHead, world_size));
static_assert(offsetof(GroupLayout, flights) == offsetof(GroupHead, flights));
static_assert(sizeof(EventWord) == 4);

}  // namespace shoal
