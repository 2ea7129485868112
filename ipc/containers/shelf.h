// One shelf of a container: its lock, its changes, and what an heir of the lock does about one that was cut off.
#pragma once

#include <shoal/internal/ipc/containers/container.h>
#include <shoal/internal/ipc/containers/layout.h>
#include <shoal/internal/ipc/containers/parcel.h>
#include <shoal/ipc/heap.h>

#include <atomic>
#include <cstdint>
#include <span>

namespace shoal {

constexpr std::uint64_t kLeastSlots = 8;  // of a table

inline std::uint64_t word_of(const Slot& slot) {
  return slot.parcel.load(std::memory_order_relaxed);  // relaxed: locked
}

/// A shelf, by a caller that has its lock, or who closes the container. No state of its own. What a change does, in this
/// order, and what its death leaves after each step:
///
///   1. notes in the shelf which word is going to change, and to what   an heir drops what came; nothing has changed
///   2. names the container as holder of what comes, in its own stead   the same: `came` is the container's by then
///   3. stores the word                                                 an heir drops what went; the change is made
///   4. drops what went                                                 an heir goes on with it
///   5. takes the note back                                             the heir has nothing to do
///
/// An heir finds out by the word itself whether step 3 was made. Each drop asks first whether the container has that
/// hold still (keeps()), so it may be repeated.
///
/// Who may change which word is in docs/containers.md, "How it lies in memory". Invariants:
///
///  I1 The lock's holder alone writes: the note, the words that a change may change, counts, marks. Who closes the
///     container has nobody beside it. So no word of a shelf is ever changed by two at a time.
///  I2 An heir sees all that the dead one stored: a death is believed when the kernel has ended the process. What it
///     stored is a beginning of what it was to store, in the order of the program, provided that the compiler keeps
///     that order. That is what releases and signal fences are for: R1 to R3, F1 to F3.
///  I3 One may read without the lock: who makes an arena's next version reads `table` (A3 in arena_core.cpp).
///  I4 What a block that may have gone says of itself counts only if it was the same block before and after (A4).
class Shelf {
 public:
  Shelf(Heap& heap, BlockOffset container, ContainerLayout& layout, std::uint32_t index)
      : heap_(heap), container_(container), layout_(layout), shelf_(*layout.shelf(index)), index_(index) {}

  ShelfLayout& layout() const { return shelf_; }
  ContainerLayout& container() const { return layout_; }
  Heap& heap() const { return heap_; }
  std::uint32_t index() const { return index_; }
  KeptHeader kept_header() const { return {container_.value, index_, 0}; }

  /// Null if there is none yet.
  TableLayout* table() const {
    // relaxed: under the lock.
    const std::uint64_t block = shelf_.table.load(std::memory_order_relaxed);
    return block == 0 ? nullptr : &table_in(block);
  }
  std::span<Slot> slots() const {
    TableLayout* now = table();
    return now ? std::span(now->slots(), now->capacity) : std::span<Slot>();
  }
  ParcelLayout& parcel(std::uint64_t block) const {
    return *reinterpret_cast<ParcelLayout*>(heap_.memory().payload(BlockOffset{block}));
  }

  /// Changes a slot: a parcel comes (a hold of this process on it, the only one), or none does and the slot becomes
  /// `otherwise`; what was there goes.
  void change(Slot& slot, Hold comes, std::uint64_t otherwise = Slot::kEmpty) noexcept;
  /// Changes the table, or an arena's version. `parcels` are those new ones that the table names; those of the old table
  /// that the new one does not name go with it.
  void change_table(Hold comes, std::span<Hold> parcels = {}) noexcept;
  /// Drops all.
  void empty() noexcept { change_table({}); }

  /// A table of so many empty slots, held by this process. Throws OutOfSharedMemory.
  Hold make_table(std::uint64_t capacity) const;
  TableLayout& table_in(std::uint64_t block) const {
    return *reinterpret_cast<TableLayout*>(heap_.memory().payload(BlockOffset{block}));
  }

  /// Ends the change that a dead process was making, if there is one.
  void settle() noexcept;
  /// Counts anew what is there.
  void recount() noexcept;
  /// Drops parcels of processes that are dead.
  void sweep();
  /// How many processes of the session were found dead so far: when it changes, parcels may have to go.
  std::uint32_t deaths() const;
  /// Whether the process with which the parcel goes is dead. Asks the kernel.
  static bool has_ended(const ParcelLayout& parcel);

 private:
  /// Whether the container holds this block, as one of this shelf; then it does so until this caller drops it.
  bool keeps(std::uint64_t block) const noexcept;
  void give(Hold hold) noexcept;
  void make_change(std::atomic<std::uint64_t>& word, std::uint64_t came, ChangeKind kind, Hold comes,
                   std::span<Hold> parcels) noexcept;
  void drop(std::uint64_t loser, std::uint64_t winner, ChangeKind kind) noexcept;

  Heap& heap_;
  BlockOffset container_;
  ContainerLayout& layout_;
  ShelfLayout& shelf_;
  std::uint32_t index_;
};

/// The lock of a shelf, for as long as the object lives. Waits as long as it takes: a holder that is stopped keeps the
/// lock, that of one that died is taken over, and what it left is settled. Throws std::logic_error if this thread is in
/// the middle of an update of the same container, whose function must not use it, or decodes what it takes out.
class LockedShelf : public Shelf {
 public:
  LockedShelf(const Container& container, std::uint32_t index);
  LockedShelf(const LockedShelf&) = delete;
  ~LockedShelf() { layout().lock.unlock(); }

 private:
  void prepare(bool inherited);
};

/// While it lives, this thread may lock no shelf of the container.
class UpdateMark {
 public:
  explicit UpdateMark(BlockOffset container) noexcept;
  UpdateMark(const UpdateMark&) = delete;
  ~UpdateMark();
  static bool is_set_for(BlockOffset container) noexcept;

 private:
  BlockOffset container_;
  const UpdateMark* outer_;
};

/// Calls taken(entry) if the entry, which is about to be taken out, brings handles. False if it does not: then the
/// caller does it without the lock.
bool show_before_it_goes(const Container& container, const Entry& entry, const Taken& taken);

}  // namespace shoal
