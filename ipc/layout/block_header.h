// How a block's header and its hold words lie in shared memory.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/base/process_tag.h>

#include <atomic>
#include <cstdint>

namespace shoal {

/// Position of a block's header in the session's memory: what crosses between processes. 0 is none.
struct BlockOffset {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  bool operator==(const BlockOffset&) const = default;
};

/// What a block holds, for the survivor that has to empty it.
enum class BlockType : std::uint32_t {
  kBytes = 0,
  kHoldChunk = 1,
  kRing = 2,
  kBarrier = 3,
  kPipeEnd = 4,
  kSemaphore = 5,
  kEvent = 6,
  kCondition = 7,
  // These are nothing that a survivor has to empty: they tell those that look on what is there.
  kTaskLedger = 8,
  kLock = 9,
  kRLock = 10,
  kTrace = 11,
  kGroup = 12,     // of ranks that do collectives
  kReadOnly = 13,  // bytes, and a ReadOnlyTrailer: nobody writes to them again
  // To be emptied again.
  kContainer = 14,  // Dict, List, Namespace, Arena
  kParcel = 15,     // a value in one of them
};

/// In shared memory. Every hold on the block is a word that names its owner (ProcessTag); the block
/// lives while any such word is not zero.
///
/// Invariants, for any template argument (atomics of processes, threads or a model checker):
///  I1 A word goes 0 -> tag by CAS, by a process that already has a hold on the block, by its visitor
///     (I5) or by the one that allocates it; tag -> 0 and tag -> tag by whoever the tag names, or by
///     the reclaimer of that process; a tag in transit -> tag by whoever it was sent or lent to.
///  I2 Adding a hold bumps the change count in `state` after the word is set, and before the adder
///     gives up any other hold. So a process that read `state`, then found all words zero, and then
///     finds `state` unchanged, knows that they were zero all at once: a hold that it missed must have
///     been added in between, since only a holder can add, or a visitor, who changes `state`, too.
///  I3 Live -> free is one CAS on `state` from the value read before the words. Exactly one process
///     wins it, whoever looks and however often. The count only grows, for as long as the session
///     lives, so a stale look at a block that was reused meanwhile fails.
///  I4 All-zero is stable: nobody is left who could add.
///  I5 While a live block's state names a visitor, nobody closes it: the state that I3's CAS starts from names none. So
///     a process without a hold may visit a live block, by one CAS, and then touch its chunks and add a hold.
///
/// Who changes `state`, and so may write the other members:
///
///   kLive                            any holder, by adding one change; who drops the last hold, to kClosing (I3);
///                                    anyone, to kLive with itself as visitor where there is none (I5), and back
///   kClosing(slot)                   that process alone, to kFree when the block is emptied
///   kFree, kUnused of a small block  the owner of the extent alone, to kLive
///   kFree of a large block           the owner of the run, to kMaking; anyone, to kReleasing (extent_protocol.h)
///   kMaking(slot)                    that process alone, to kLive
///   kReleasing(slot)                 nobody: it stays until the extent has another use
///
/// The reclaimer of a dead process makes its kClosing kClosing in its own name, its kMaking and kReleasing kReleasing.
/// What stands in a header whose extent is free, or was never handed out since, is left from an earlier use and means
/// nothing: who makes a block of it writes all of it anew.
struct BlockHeader {
  enum Kind : std::uint64_t { kUnused = 0, kLive = 1, kClosing = 2, kFree = 3, kMaking = 4, kReleasing = 5 };
  using KindField = BitField<0, 4>;
  using Slot = BitField<KindField::kEnd, ProcessTag::Slot::kEnd>;
  using Changes = BitField<Slot::kEnd, 48>;
  static constexpr std::uint64_t kOneChange = Changes::kOne;
  static_assert(Changes::kEnd == 64);
  static constexpr int kInlineHolds = 7;

  /// bits 0..3 kind   bits 4..15 slot of the process that closes, makes or releases it; kLive: of the visitor, plus
  /// one, or 0   bits 16..63 change count
  std::atomic<std::uint64_t> state;
  std::uint64_t size;                   // bytes asked for
  std::uint64_t payload;                // offset of the bytes
  std::atomic<std::uint64_t> overflow;  // offset of the header of a chunk: more hold words, a chunk's its parent's
  std::atomic<BlockType> type;
  std::atomic<std::uint32_t> holds[kInlineHolds];

  static Kind kind(std::uint64_t state) { return Kind(KindField::of(state)); }
  static std::uint32_t slot(std::uint64_t state) { return std::uint32_t(Slot::of(state)); }
  /// Of a live block: whether a process of this slot visits it (I5), and whether any does.
  static bool is_visited_by(std::uint64_t state, std::uint32_t slot) { return Slot::of(state) == slot + 1u; }
  static bool is_visited(std::uint64_t state) { return Slot::of(state) != 0; }
  static std::uint64_t with(std::uint64_t state, Kind kind, std::uint32_t slot = 0) {
    return (state & Changes::kMask) + Changes::kOne + Slot::make(slot) + KindField::make(kind);
  }
};

static_assert(sizeof(BlockHeader) == 64);

/// One hold: which block, and which of its hold words. Crosses between processes inside messages.
struct HoldRef {
  BlockOffset block;
  std::uint32_t word = 0;  // index over the inline words and then those of the overflow chunks
  std::uint32_t reserved = 0;
};

static_assert(sizeof(HoldRef) == 16);

constexpr std::uint32_t kWordsPerChunk = 1000;

/// Payload of a kHoldChunk block.
struct HoldChunk {
  std::uint64_t parent;  // offset of the block whose holds these are
  std::atomic<std::uint32_t> holds[kWordsPerChunk];
};

}  // namespace shoal
