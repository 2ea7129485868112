// The first page of a session's memory, and where everything else in it lies. Pictured in docs/heap.md.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/base/process_tag.h>
#include <shoal/internal/ipc/layout/block_header.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// Start of the memfd. Written once by the root before anyone else can see it, except the atomics.
/// All positions are byte offsets from the start of the mapping.
///
///   | SessionLayout | process table | activities | stacks | names | extent table | free hints | block headers | data |
struct SessionLayout {
  static constexpr std::uint64_t kMagic = 0x316c616f6873'0a0dull;  // "shoal1" and a line end
  static constexpr std::uint32_t kVersion = 8;

  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t process_slots;
  std::uint64_t bytes;  // of the whole mapping
  std::uint64_t processes;
  std::uint64_t extents;
  std::uint64_t hints;
  std::uint64_t headers;
  std::uint64_t data;
  std::uint64_t extent_count;
  std::int32_t root_pid;
  std::uint32_t reserved;
  std::uint64_t names;
  std::uint64_t activities;
  /// Whether somebody traces the session, and until when (see TraceSwitch): beside what never changes, since all look
  /// here all the time.
  std::atomic<std::uint64_t> tracing;
  std::uint64_t stacks;
  alignas(64) std::atomic<std::uint64_t> extents_touched;  // no extent at or past this index was ever used
  // These four are for decisions that may be a little off: a process can die between a change and its being
  // counted. They are set right after every death, and before memory is refused (Extents::recount).
  alignas(64) std::atomic<std::uint64_t> extents_committed;  // extents that may have pages
  std::atomic<std::int64_t> extents_idle;                    // of these: in no use at the moment
  std::atomic<std::uint64_t> extents_peak;                   // most that were ever committed
  std::atomic<std::uint64_t> header_bytes;                   // of the blocks of extents of small ones
  // The budget when it was asked for last, for those that look on: not theirs, but that of the session's processes.
  std::atomic<std::uint64_t> allowed_bytes;       // 0: never asked for
  std::atomic<std::uint32_t> allowed_by;          // Budget::Which
  alignas(64) std::atomic<std::uint64_t> deaths;  // processes reclaimed after a death, ever
  std::atomic<std::uint32_t> names_lock;          // tag of the process that reads or writes the names
  EventWord names_changed;
  std::atomic<std::uint32_t> slots_touched;  // no slot of the process table at or past this index was ever taken
  // Looks after the dead, and questions to the kernel whether a process lives, ever: figures.
  std::atomic<std::uint64_t> looks;
  std::atomic<std::uint64_t> liveness_questions;
  /// Who looks after the dead next, for all: see LivenessWatch.
  static constexpr std::size_t kWatches = 8;
  alignas(64) std::atomic<std::uint64_t> watches[kWatches];
  /// Whose threads learn of a death at once: see DeathWatch.
  static constexpr std::size_t kSentries = 2;
  alignas(64) std::atomic<std::uint64_t> sentries[kSentries];
};

static_assert(sizeof(SessionLayout) == 448);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// One process. A slot goes free -> alive -> dead -> free.
struct ProcessRecord {
  enum State : std::uint32_t { kFree = 0, kTaking = 1, kAlive = 2, kDead = 3 };
  using StateField = BitField<0, 32>;
  using Whose = BitField<StateField::kEnd, 32>;

  /// bits 0..31 State   bits 32..63 kAlive: generation, so that no two processes of a slot are the same word;
  /// kDead: tag of the process that reclaims the slot, or of the dead one itself for nobody
  std::atomic<std::uint64_t> state;
  std::atomic<std::uint32_t> generation;  // of the process that is or was here; grows by one each time
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint64_t> taken_at;  // by process_clock(), when it took the slot; tells a reused pid apart
  std::atomic<std::uint32_t> left;      // 1: it said that it leaves, so its end is no crash
  std::int32_t rank;                    // -1: none
  char name[32];
  std::atomic<std::uint32_t> parent;    // tag of the process that started it, 0 for none; set by runtime/
  std::atomic<std::uint32_t> children;  // how many it has started so far
  /// Tag of the dead process that it is giving back at this moment: whoever reclaims this one goes on with that.
  std::atomic<std::uint32_t> reclaiming;
  /// Times that another process freed a large block of this one's: then it looks at its hints.
  std::atomic<std::uint32_t> remote_frees;
  std::atomic<std::uint32_t> pid_space;  // own_pid_space() of the process: pid means nothing in another one
  std::uint8_t reserved[44];

  static State state_of(std::uint64_t word) { return State(StateField::of(word)); }
  /// Somebody lives in the slot, or its dead one is not yet reclaimed.
  static bool is_used(std::uint64_t word) { return state_of(word) == kAlive || state_of(word) == kDead; }
  static std::uint64_t alive(std::uint32_t generation) { return StateField::make(kAlive) | Whose::make(generation); }
  static std::uint64_t dead_by(ProcessTag reclaimer) { return StateField::make(kDead) | Whose::make(reclaimer.word()); }
  /// Of a word with kDead.
  static ProcessTag reclaimer_of(std::uint64_t word) { return ProcessTag::from_word(std::uint32_t(Whose::of(word))); }
};

static_assert(sizeof(ProcessRecord) == 128);

/// What a process says about itself to those that look on; one for each slot. Written by that process alone, read by
/// anyone without its help: everything in it is a figure, and nothing of shoal's own depends on it.
struct ActivityRecord {
  static constexpr std::size_t kLabelBytes = 56;  // with the zero at its end
  static constexpr std::size_t kWaits = 7;        // threads that sleep at once; further ones are not noted

  /// A thread that sleeps in the kernel until others do something.
  struct Wait {
    /// Where the word lies that it sleeps on; 0: it does not. What that word belongs to, and so what it waits for, is
    /// found out by whoever looks on.
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint64_t> since;   // CLOCK_MONOTONIC, in nanoseconds
    std::atomic<std::uint32_t> thread;  // as gettid(); 0: the record is free
    std::uint32_t reserved;
  };

  std::atomic<std::uint32_t> owner;          // tag of the process that all below is about
  std::atomic<std::uint32_t> label_changes;  // odd while the label is being written
  std::atomic<std::uint64_t> trace;          // the block with its events while it is being traced
  std::atomic<std::uint64_t> label[kLabelBytes / 8];
  Wait waits[kWaits];
  std::uint8_t reserved[16];
};

static_assert(sizeof(ActivityRecord) == 256);

/// Where a process's threads write their stacks when somebody looks on and asks for them (see stack_answer.h): one page
/// for each slot, which is no page before the first question. Written by that process alone.
struct StackRecord {
  static constexpr std::uint32_t kMostFrames = 64;

  /// Number of the question, twice; one more while its answer is being written.
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> owner;   // tag of the process that wrote here last
  std::atomic<std::uint32_t> thread;  // as gettid()
  std::atomic<std::uint32_t> count;   // of frames
  std::uint8_t reserved[48];
  std::atomic<std::uint64_t> frames[kMostFrames];  // addresses of instructions, innermost call first
};

static_assert(sizeof(StackRecord) == 576);

struct StackRecords {
  static constexpr std::uint32_t kCount = 7;  // threads that answer at once

  StackRecord records[kCount];
  std::uint8_t reserved[64];
};

static_assert(sizeof(StackRecords) == 4096);

/// One published value. Everything but `owner` is valid while that is set.
struct NameRecord {
  static constexpr std::uint32_t kCount = 256;

  std::atomic<std::uint32_t> owner;  // tag of the process that published it, 0: the record is free
  std::uint32_t reserved;
  HoldRef publication;  // the block with a PublicationLayout; the hold is in transit in the owner's name
  char key[104];
};

static_assert(sizeof(NameRecord) == 128);

/// What the 2 MiB extents are used for. `state` (an ExtentState) is the only word that two processes contend for; who
/// may change it from what to what stands in extent_protocol.h.
struct ExtentRecord {
  enum Use : std::uint64_t {
    kCold = 0,     // no pages
    kWarm = 1,     // free, has pages
    kClaimed = 2,  // its owner's, who makes something of it or gives its pages back
    kSmall = 3,    // blocks of one size class
    kHead = 4,     // first extent of a large block
    kTail = 5,     // further extent of a large block; nobody's by itself, but part of the run that its head begins
    kCut = 6,      // first extent of a large block that its owner takes apart
  };
  /// In place of the owner's slot: the owner died; anyone may take an extent of blocks over.
  static constexpr std::uint32_t kOrphan = ProcessTag::kSlotCount - 1;

  std::atomic<std::uint64_t> state;
  std::atomic<std::uint64_t> hint_summary[8];  // one bit for each 64-bit word of the extent's free hints
  std::atomic<std::uint32_t> used;             // kSmall: blocks from this index on were never handed out
  /// Tag of the one process that has these pages registered with a device's driver, 0 for none: they are not given back
  /// to the system. Stays when the extent becomes another's; see pinned_extents.h.
  std::atomic<std::uint32_t> pinned_by;
  std::uint8_t reserved[48];
};

static_assert(sizeof(ExtentRecord) == 128);

constexpr std::uint64_t kExtentBytes = 2u << 20;
constexpr std::uint64_t kBlockAlignment = 64;
constexpr std::uint64_t kHeaderBytes = 64;
/// Header slots of an extent. Header memory is never used for anything else, which is what lets a
/// process look at the header of a block that may just have been freed.
constexpr std::uint64_t kHeadersPerExtent = kExtentBytes / kBlockAlignment;

}  // namespace shoal
