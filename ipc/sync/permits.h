// The count of a semaphore, and who has what of it.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/base/process_tag.h>

#include <atomic>
#include <cstdint>

namespace shoal {

/// The word of a semaphore. In bits:
///   0..23 permits left   24..35 slot   36..37 kind   38 pending   39..59 version   60..63 turn
/// slot, kind and version are those of the last change of the ledger. While it is pending, it is decided, but not yet
/// written into the ledger's cell. version is the cell's before the change; turn grows by one with each change.
struct PermitState {
  enum Kind : std::uint64_t { kAcquire = 0, kReturn = 1, kReap = 2, kRaise = 3 };
  using Left = BitField<0, 24>;
  using Slot = BitField<Left::kEnd, ProcessTag::Slot::kEnd>;
  using KindField = BitField<Slot::kEnd, 2>;
  using Pending = BitField<KindField::kEnd, 1>;
  using Version = BitField<Pending::kEnd, 21>;
  using Turn = BitField<Version::kEnd, 4>;
  static constexpr std::uint32_t kMost = Left::kMost;
  std::uint64_t word = 0;

  static PermitState make(std::uint32_t left, std::uint32_t slot, Kind kind, std::uint32_t version,
                          std::uint32_t turn) {
    return {Left::make(left) | Slot::make(slot) | KindField::make(kind) | Pending::make(kind != kRaise) |
            Version::make(version) | Turn::make(turn)};
  }
  std::uint32_t left() const { return std::uint32_t(Left::of(word)); }
  std::uint32_t slot() const { return std::uint32_t(Slot::of(word)); }
  Kind kind() const { return Kind(KindField::of(word)); }
  bool pending() const { return Pending::of(word); }
  std::uint32_t version() const { return std::uint32_t(Version::of(word)); }
  std::uint32_t turn() const { return std::uint32_t(Turn::of(word)); }
  PermitState done() const { return {word & ~Pending::kMask}; }
};

static_assert(PermitState::Turn::kEnd == 64);

/// One process's line in the ledger. In bits: 0..23 permits it has   24..42 its generation   43..63 version.
struct LedgerCell {
  using Count = BitField<0, 24>;
  using Generation = BitField<Count::kEnd, 19>;
  using Version = BitField<Generation::kEnd, 21>;
  std::uint64_t word = 0;

  static LedgerCell make(std::uint32_t count, std::uint32_t generation, std::uint32_t version) {
    return {Count::make(count) | Generation::make(generation) | Version::make(version)};
  }
  std::uint32_t count() const { return std::uint32_t(Count::of(word)); }
  std::uint32_t generation() const { return std::uint32_t(Generation::of(word)); }
  std::uint32_t version() const { return std::uint32_t(Version::of(word)); }
};

// What the state and its ledger both have, and the tag's generation, are of one size.
// NOLINTBEGIN(misc-redundant-expression): that is what is asserted.
static_assert(LedgerCell::Version::kEnd == 64 && LedgerCell::Version::kMost == PermitState::Version::kMost &&
              LedgerCell::Count::kMost == PermitState::Left::kMost &&
              LedgerCell::Generation::kMost == ProcessTag::Generation::kMost);
// NOLINTEND(misc-redundant-expression)

/// Taking, giving back and reclaiming permits, so that a process can be killed at any instruction of it.
///
/// Invariants:
///  I1 A change is one CAS on the state: it moves permits and names the ledger's cell that changes with them. From then
///  on
///     it has happened, whoever is killed.
///  I2 The next change is possible only when the cell is written (finish), by whoever comes: one CAS on the cell, from
///     the version that the state names to the next, so it is written once, however many help.
///  I3 So between two equal states the ledger stands still: what was read of it in between holds at the second one's
///  CAS. I4 permits left + all counts in the ledger = the permits that there are. Only kRaise changes that sum.
///
/// A helper that is stopped between reading a cell and its CAS for exactly a multiple of 2,097,152 changes of that cell
/// would write it once too often; no such coincidence is guarded against.
///
/// `Atomic` is std::atomic, or a model checker's. `cells` has ProcessTag::kSlotCount of them. Called by anyone, any
/// time.
template <template <class> class Atomic>
class PermitCore {
 public:
  enum class Released { kDone, kTooMany };

  /// seq_cst, all of them: a change of the state is what waiters look at (EventWord), the ledger is read between two
  /// looks at the state (I3), and a permit taken makes visible what was done before it was given back.
  static constexpr auto kOrder = std::memory_order_seq_cst;

  /// `used`: no cell at or past this index was ever used.
  PermitCore(Atomic<std::uint64_t>& state, Atomic<std::uint32_t>& used, Atomic<std::uint64_t>* cells)
      : state_(state), used_(used), cells_(cells) {}

  std::uint32_t left() const { return PermitState{state_.load(kOrder)}.left(); }

  /// Takes a permit for `self`; false if none is left.
  bool acquire(ProcessTag self) {
    for (;;) {
      PermitState state = settled();
      if (state.left() == 0) return false;
      LedgerCell cell = load(self.slot());
      if (cell.generation() != self.generation()) {
        // A dead process was here before: reclaimed, or else now.
        if (cell.count() != 0)
          reap(ProcessTag(self.slot(), cell.generation()));
        else
          adopt(self, cell);
        continue;
      }
      if (change(state, state.left() - 1, self.slot(), PermitState::kAcquire, cell)) return true;
    }
  }

  /// Gives a permit back: one of `self`'s, else one of the process that has most, else it is one more than there were.
  /// `bound` permits are the most there may be left: PermitState::kMost, or fewer.
  Released release(ProcessTag self, std::uint32_t bound) {
    for (;;) {
      PermitState state = settled();
      if (state.left() >= bound) return Released::kTooMany;
      std::uint32_t slot = self.slot();
      LedgerCell cell = load(slot);
      if (cell.count() == 0 || cell.generation() != self.generation()) {
        slot = richest();
        cell = load(slot);
      }
      // Only if the state has not changed since is this the ledger that belongs to it (I3): the CAS tells.
      const auto kind = cell.count() == 0 ? PermitState::kRaise : PermitState::kReturn;
      if (change(state, state.left() + 1, slot, kind, cell)) return Released::kDone;
    }
  }

  /// Takes back what a dead process had. How many that were. Repeatable.
  std::uint32_t reap(ProcessTag dead) {
    for (;;) {
      PermitState state = settled();
      LedgerCell cell = load(dead.slot());
      if (cell.generation() != dead.generation() || cell.count() == 0) return 0;
      std::uint32_t left = state.left() + cell.count();
      if (left > PermitState::kMost) left = PermitState::kMost;
      if (change(state, left, dead.slot(), PermitState::kReap, cell)) return cell.count();
    }
  }

  /// Calls visit(tag, permits) for each process that has some.
  template <class Visit>
  void for_each_holder(Visit&& visit) {
    settled();
    for (std::uint32_t slot = 0, end = used_.load(kOrder); slot < end; ++slot)
      if (LedgerCell cell = load(slot); cell.count() != 0) visit(ProcessTag(slot, cell.generation()), cell.count());
  }

 private:
  LedgerCell load(std::uint32_t slot) const { return {cells_[slot].load(kOrder)}; }

  /// The state with nothing pending, as it was at some moment.
  PermitState settled() {
    for (;;) {
      PermitState state{state_.load(kOrder)};
      if (!state.pending()) return state;
      finish(state);
    }
  }

  bool change(PermitState from, std::uint32_t left, std::uint32_t slot, PermitState::Kind kind, LedgerCell cell) {
    PermitState to = PermitState::make(left, slot, kind, cell.version(), from.turn() + 1);
    if (!state_.compare_exchange_strong(from.word, to.word, kOrder)) return false;
    SHOAL_KILL_POINT("permits.decided");
    if (to.pending()) finish(to);
    return true;
  }

  /// Writes the pending change into its cell, unless that was done, and says that it is done.
  void finish(PermitState state) {
    auto& place = cells_[state.slot()];
    LedgerCell cell{place.load(kOrder)};
    if (cell.version() == state.version()) {
      std::uint32_t count = state.kind() == PermitState::kAcquire  ? cell.count() + 1
                            : state.kind() == PermitState::kReturn ? cell.count() - 1
                                                                   : 0;
      LedgerCell changed = LedgerCell::make(count, cell.generation(), cell.version() + 1);
      // If this fails, somebody else wrote it.
      place.compare_exchange_strong(cell.word, changed.word, kOrder);
      SHOAL_KILL_POINT("permits.written");
    }
    state_.compare_exchange_strong(state.word, state.done().word, kOrder);
    SHOAL_KILL_POINT("permits.done");
  }

  /// An empty cell becomes that of a new process in its slot. No change can be pending on it: one of the dead process's
  /// was finished when that one was reclaimed, before the slot was free.
  void adopt(ProcessTag self, LedgerCell cell) {
    // Before the first permit: whoever looks for permits after that looks here too.
    for (std::uint32_t used = used_.load(kOrder); used <= self.slot();)
      if (used_.compare_exchange_weak(used, self.slot() + 1, kOrder)) break;
    LedgerCell mine = LedgerCell::make(0, self.generation(), cell.version());
    cells_[self.slot()].compare_exchange_strong(cell.word, mine.word, kOrder);
  }

  std::uint32_t richest() const {
    std::uint32_t best = 0, most = 0;
    for (std::uint32_t slot = 0, end = used_.load(kOrder); slot < end; ++slot)
      if (std::uint32_t count = load(slot).count(); count > most) {
        best = slot;
        most = count;
      }
    return best;
  }

  Atomic<std::uint64_t>& state_;
  Atomic<std::uint32_t>& used_;
  Atomic<std::uint64_t>* cells_;
};

}  // namespace shoal
