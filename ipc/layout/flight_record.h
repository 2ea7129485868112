// The flight recorder of a group of ranks: its last collectives, as they lie in the group's block. Pictured in
// docs/collectives.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// One collective of one rank. Names are text, so that who looks on need not know what there is; they have no zero at
/// their end where they fill their place.
struct FlightRecord {
  static constexpr std::size_t kNameWords = 3;
  /// In `end`: it ended by an exception. Times are no finer than that.
  static constexpr std::uint64_t kFailed = 1;

  std::atomic<std::uint64_t> call;   // which one of this rank's, from 1 on; 0 while the rest is written
  std::atomic<std::uint64_t> start;  // CLOCK_MONOTONIC_COARSE, in nanoseconds
  std::atomic<std::uint64_t> end;    // likewise; 0: it goes on
  std::atomic<std::uint64_t> bytes;  // of this rank's data
  std::atomic<std::uint64_t> name[kNameWords];
  std::atomic<std::uint64_t> type;  // of the elements; empty: bytes
};

static_assert(sizeof(FlightRecord) == 64);

/// All that one rank says. Written by that rank alone, with plain stores, and read by those that look on, by copies of
/// the bytes: nothing of shoal's own depends on it. A rank that is killed leaves what it had written.
struct FlightLog {
  static constexpr std::uint64_t kRecords = 1024;

  alignas(64) std::atomic<std::uint64_t> calls;  // begun, ever: call n lies in record n % kRecords
  std::atomic<std::uint32_t> tag;                // ProcessTag of the rank's process; 0: nobody has joined yet
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint32_t> thread;  // that called last, as gettid()
  std::atomic<std::uint32_t> left;    // 1: the rank has left the group
  std::atomic<std::uint32_t> told;  // 1: some rank has reported, in rank 0's a time-out, in rank 1's who has not joined
  std::atomic<std::uint32_t> number;  // that the rank has in a group over several hosts, plus 1; 0: in none
  alignas(64) FlightRecord records[kRecords];
};

static_assert(sizeof(FlightLog) == 64 + 64 * FlightLog::kRecords && offsetof(FlightLog, records) == 64);

/// The start of a block of type kGroup, for those that look on and know nothing of groups: the same places as in
/// GroupLayout.
struct GroupHead {
  static constexpr std::uint32_t kMagic = 0x6b6e6172;  // "rank"
  static constexpr std::uint32_t kVersion = 5;
  static constexpr std::uint32_t kLargestWorld = 256;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t world_size;
  std::uint32_t reserved;
  std::uint64_t others[3];
  std::uint64_t flights;  // position of rank 0's FlightLog, from the start of this
};

static_assert(sizeof(GroupHead) == 48);

}  // namespace shoal
