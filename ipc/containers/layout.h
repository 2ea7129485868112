// How dictionaries, lists, name spaces and arenas lie in shared memory. Pictured in docs/containers.md.
#pragma once

#include <shoal/internal/ipc/base/event_word.h>
#include <shoal/internal/ipc/layout/block_header.h>
#include <shoal/internal/ipc/sync/lock_word.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shoal {

/// Begins each block that a container keeps: whose it is.
struct KeptHeader {
  std::uint64_t container;  // offset of the container's block
  std::uint32_t shelf;
  std::uint32_t reserved;
};

/// Payload of a block of type kParcel: a value with its key. `handles` HoldRefs follow, one more if the value's bytes
/// lie in a block of their own (`spilled`), then the key's bytes, then the value's.
struct ParcelLayout {
  KeptHeader kept;
  std::uint64_t schema;  // of the value's type
  std::uint64_t hash;    // of the key
  std::uint64_t order;   // in which the keys came; written under the shelf's lock
  std::uint64_t mark;    // the last change that went by here, also under the lock
  std::uint64_t value_bytes;
  std::uint32_t key_bytes;
  std::uint32_t handles;
  std::uint32_t spilled;  // 0 or 1
  std::uint32_t owner;    // the word in whose name the parcel holds what its HoldRefs name
  std::uint32_t mortal;   // tag of the process with which it goes; 0: none
  std::uint32_t reserved;

  std::uint32_t held() const { return handles + spilled; }
  HoldRef* holds() { return reinterpret_cast<HoldRef*>(this + 1); }
  std::byte* key() { return reinterpret_cast<std::byte*>(holds() + held()); }
  std::byte* value() { return key() + (std::size_t(key_bytes) + 7) / 8 * 8; }
};

static_assert(sizeof(ParcelLayout) == 80);

/// A place of a table. The parcel's block, or one of the words below it.
struct Slot {
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::uint64_t kRemoved = 1;  // a search goes on behind it

  std::atomic<std::uint64_t> parcel;
  std::uint64_t hash;
};

/// Payload of a table's block; `capacity` Slots follow.
struct TableLayout {
  KeptHeader kept;
  std::uint64_t capacity;
  std::uint64_t reserved;

  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
  static std::size_t bytes(std::uint64_t capacity) { return sizeof(TableLayout) + capacity * sizeof(Slot); }
};

static_assert(sizeof(TableLayout) == 32);

/// What goes when a change is done, or undone.
enum class ChangeKind : std::uint32_t {
  kBlock = 0,     // the block that came, or that went
  kContents = 1,  // a table, and those of its parcels that are not in the other one
};

/// A part of a container, with a lock of its own. All but `lock` and `changed` is the lock holder's. A change is one
/// store: to `table`, or to a slot of the table. It is noted before, so that an heir of the lock knows what to drop.
struct alignas(64) ShelfLayout {
  LockWord lock;
  EventWord changed;                 // something came
  std::atomic<std::uint64_t> table;  // block: a TableLayout, or an arena's version; 0: none
  std::uint64_t used;                // slots that are not empty
  std::uint64_t live;                // parcels
  std::uint64_t mortal;              // of these, those that go with a process
  std::uint64_t epoch;               // the container's, when the shelf was last emptied
  std::uint32_t deaths;              // the session's, when mortal parcels were last looked at

  // The note of the change that is being made. All stores to it are release, so an heir sees them in their order.
  std::atomic<std::uint32_t> changing;  // 0: there is none
  std::atomic<std::uint64_t> place;     // offset of the word that changes
  std::atomic<std::uint64_t> came;      // what the word becomes, and the block that comes if that is one
  std::atomic<std::uint64_t> went;      // what the word was
  std::atomic<ChangeKind> kind;
  std::uint64_t serial;  // of looks at what both of two tables have: what `mark` is compared with
};

static_assert(sizeof(ShelfLayout) == 128);

/// What the container's users see of it.
enum class ContainerKind : std::uint32_t { kNone = 0, kDict = 1, kList = 2, kNamespace = 3, kArena = 4 };

/// Payload of a block of type kContainer; `shelves` ShelfLayouts follow.
struct ContainerLayout {
  static constexpr std::uint32_t kMagic = 0x746e6f63;  // "cont"
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::uint32_t kMostShelves = 16;

  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t schema;  // of keys and values
  ContainerKind kind;
  std::uint32_t shelves;
  std::uint32_t owner;                 // the word in whose name the container holds tables and parcels
  std::atomic<std::uint32_t> crashes;  // of processes that had a handle
  std::uint32_t reserved[2];
  std::atomic<std::uint64_t> epoch;  // how often all was cleared; changed with all locks held
  std::atomic<std::uint64_t> order;  // the next key's
  std::uint64_t reserved2;

  ShelfLayout* shelf(std::uint32_t index) { return reinterpret_cast<ShelfLayout*>(this + 1) + index; }
  static std::size_t bytes(std::uint32_t shelves) { return sizeof(ContainerLayout) + shelves * sizeof(ShelfLayout); }
};

static_assert(sizeof(ContainerLayout) == 64);

}  // namespace shoal
