// The algorithm of the ring: who may touch which cell when.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/base/process_tag.h>

#include <atomic>
#include <cstdint>

namespace shoal {

/// A place in the order of messages: cell index and lap. In a word, bits 0..23 index, 24..63 lap.
struct RingTicket {
  using Index = BitField<0, 24>;
  using Lap = BitField<Index::kEnd, 40>;
  std::uint64_t word = 0;

  static RingTicket make(std::uint64_t lap, std::uint32_t index) { return {Lap::make(lap) | Index::make(index)}; }
  std::uint32_t index() const { return std::uint32_t(Index::of(word)); }
  std::uint64_t lap() const { return Lap::of(word); }
  /// Laps from one to another, right across the wrap-around: a difference of 40 bits with its sign.
  static std::int64_t laps_between(std::uint64_t from, std::uint64_t to) {
    return std::int64_t(Lap::make(to - from)) >> Lap::kBegin;
  }
  RingTicket before(std::uint32_t capacity) const {
    if (index() > 0) return {word - 1};
    return make(lap() - 1, capacity - 1);
  }
  /// Tickets from this one to a later one; negative to an earlier one.
  std::int64_t distance_to(RingTicket later, std::uint32_t capacity) const {
    return laps_between(lap(), later.lap()) * std::int64_t(capacity) + std::int64_t(later.index()) -
           std::int64_t(index());
  }
  RingTicket next(std::uint32_t capacity) const {
    if (index() + 1 < capacity) return {word + 1};
    return make(lap() + 1, 0);
  }
};

/// State of a cell: bits 0..1 phase, 2..13 slot of the process at work on it, 24..63 lap.
struct CellState {
  enum Phase : std::uint64_t { kEmpty = 0, kClaimed = 1, kFull = 2, kTaken = 3 };
  using PhaseField = BitField<0, 2>;
  using Slot = BitField<PhaseField::kEnd, ProcessTag::Slot::kEnd>;
  using Lap = RingTicket::Lap;
  std::uint64_t word = 0;

  static CellState make(Phase phase, std::uint32_t slot, std::uint64_t lap) {
    return {PhaseField::make(phase) | Slot::make(slot) | Lap::make(lap)};
  }
  Phase phase() const { return Phase(PhaseField::of(word)); }
  std::uint32_t slot() const { return std::uint32_t(Slot::of(word)); }
  std::uint64_t lap() const { return Lap::of(word); }
  /// Whether the process in this slot is at work on the cell.
  bool is_work_of(std::uint32_t slot) const {
    return (phase() == kClaimed || phase() == kTaken) && this->slot() == slot;
  }
  /// How many laps this cell is ahead of `lap`, right across the wrap-around.
  std::int64_t ahead_of(std::uint64_t lap) const { return RingTicket::laps_between(lap, this->lap()); }
};

static_assert(RingTicket::Lap::kEnd == 64 && CellState::Slot::kEnd <= CellState::Lap::kBegin);

/// Bounded multi-producer multi-consumer ring of cells that have owners.
///
///   empty(L) --put: CAS--> claimed(slot,L) --> full(L) --get: CAS--> taken(slot,L) --> empty(L+1)
///
/// Invariants:
///  I1 Cell i of lap L is claimed by one CAS from empty(L) and taken by one CAS from full(L). Owner and
///     phase change together, so there is no instant at which a cell in work has no owner.
///  I2 `tail` (`head`) is only a hint that saves a search: it never passes a cell of its lap that was
///     not yet claimed (taken), and anyone who sees it lag behind helps it on by one CAS. A process that
///     dies between the cell's CAS and the hint's leaves nothing to repair. The claimant itself moves it by a
///     plain store, which, if it comes late, may set the hint back behind what others did meanwhile: it
///     lags, and is helped on, by laps at once. So nothing but oldest() and newest() says where the ring is.
///  I3 Tickets are claimed in order, and taken in order: first in, first out for all.
///  I4 Only the owner of a claimed or taken cell writes its contents and its next state; if the owner is
///     dead, whoever wins the CAS from the dead owner's state to its own is the owner (steal).
///
/// `Atomic` is std::atomic for processes and threads, or a model checker's. `Cells` maps an index to
/// the Atomic<uint64_t> that is the cell's state. All members may be called by anyone at any time.
template <template <class> class Atomic, class Cells>
class RingCore {
 public:
  using Word = Atomic<std::uint64_t>;
  enum class Outcome { kClaimed, kBlocked };

  RingCore(Word& tail, Word& head, Cells cells, std::uint32_t capacity)
      : tail_(tail), head_(head), cells_(cells), capacity_(capacity) {}

  /// Claims the next cell to write. Blocked: the ring is full; `state` is then the cell in the way.
  Outcome claim(std::uint32_t slot, RingTicket& ticket, CellState& state) {
    return claim(slot, ticket, state, [](RingTicket, CellState&) { return true; });
  }
  /// Like this, if admit(ticket, state) agrees, which must be a matter of that ticket alone; if it does
  /// not, it sets `state` to the cell in the way.
  template <class Admit>
  Outcome claim(std::uint32_t slot, RingTicket& ticket, CellState& state, Admit&& admit) {
    return advance(tail_, CellState::kEmpty, CellState::kClaimed, slot, ticket, state, admit);
  }
  /// Claims the next message to read. Blocked: none is ready; `state` is then the next cell, which
  /// may be one that a producer is still writing.
  Outcome take(std::uint32_t slot, RingTicket& ticket, CellState& state) {
    return advance(head_, CellState::kFull, CellState::kTaken, slot, ticket, state,
                   [](RingTicket, CellState&) { return true; });
  }
  /// The message to be taken next, there already or not, and the state of its cell.
  RingTicket oldest(CellState& state) {
    for (;;) {
      RingTicket ticket{head_.load(std::memory_order_acquire)};             // pairs with whoever moved it
      state.word = cells_(ticket.index()).load(std::memory_order_seq_cst);  // A1, and a waiter's last look
      std::int64_t ahead = state.ahead_of(ticket.lap());
      if (ahead < 0 || (ahead == 0 && state.phase() != CellState::kTaken)) return ticket;
      help(head_, ticket, beyond(ticket, state, CellState::kFull));  // Case 2 of advance
    }
  }

  /// The ticket to be claimed next.
  RingTicket newest() {
    for (;;) {
      RingTicket ticket{tail_.load(std::memory_order_acquire)};  // pairs with whoever moved it
      CellState state{cells_(ticket.index()).load(std::memory_order_seq_cst)};
      std::int64_t ahead = state.ahead_of(ticket.lap());
      if (ahead < 0 || (ahead == 0 && state.phase() == CellState::kEmpty)) return ticket;
      help(tail_, ticket, beyond(ticket, state, CellState::kEmpty));  // Case 2 of advance
    }
  }

  /// The contents are written: everyone may see them.
  void publish(RingTicket ticket) {
    const CellState full = CellState::make(CellState::kFull, 0, ticket.lap());
    // seq_cst, not release: the caller looks at the waiters' word next, and a waiter looks at this word after it set
    // that one; one of the two must see the other. Also R1: pairs with A1, which takes the cell.
    cells_(ticket.index()).store(full.word, std::memory_order_seq_cst);
  }
  /// The contents are read: the cell is free for the next lap.
  void release(RingTicket ticket) {
    const CellState empty = CellState::make(CellState::kEmpty, 0, ticket.lap() + 1);
    // seq_cst: as in publish. R2: pairs with A1, which claims it.
    cells_(ticket.index()).store(empty.word, std::memory_order_seq_cst);
  }
  /// Takes over a cell whose owner is dead, in the phase in which it was left.
  bool steal(std::uint32_t index, CellState left, std::uint32_t slot) {
    const CellState mine = CellState::make(left.phase(), slot, left.lap());
    // acq_rel: what the dead owner wrote, as far as it got, is seen; pairs with its own CAS.
    return cells_(index).compare_exchange_strong(left.word, mine.word, std::memory_order_acq_rel);
  }

  CellState state(std::uint32_t index) const {
    return {cells_(index).load(std::memory_order_seq_cst)};  // seq_cst: a waiter's last look; see publish
  }
  std::uint32_t capacity() const { return capacity_; }

 private:
  // Inlined: it is nearly all that a put and a get on their quick way do.
  template <class Admit>
  [[gnu::always_inline]] Outcome advance(Word& hint, CellState::Phase from, CellState::Phase to, std::uint32_t slot,
                                         RingTicket& ticket, CellState& state, Admit&& admit) {
    for (;;) {
      ticket.word = hint.load(std::memory_order_acquire);  // pairs with whoever moved it
      Word& cell = cells_(ticket.index());
      state.word = cell.load(std::memory_order_seq_cst);  // A1, and a waiter's last look
      std::int64_t ahead = state.ahead_of(ticket.lap());
      if (ahead == 0 && state.phase() == from) {
        // Case 1: ours to claim, unless it is not admitted and still the one in question.
        std::uint64_t expected = state.word;
        if (!admit(ticket, state)) {
          // acquire: as the first look at the hint.
          if (hint.load(std::memory_order_acquire) == ticket.word) return Outcome::kBlocked;
        } else if (cell.compare_exchange_strong(expected, CellState::make(to, slot, ticket.lap()).word,
                                                std::memory_order_acq_rel)) {  // A1
          // Not a CAS, which would cost as much as the claim itself; see I2. release: as the CAS in help.
          if (hint.load(std::memory_order_relaxed) == ticket.word)  // relaxed: only spares others a search
            hint.store(ticket.next(capacity_).word, std::memory_order_release);
          return Outcome::kClaimed;
        }
      } else if (ahead > 0 || (ahead == 0 && state.phase() > from)) {
        // Case 2: claimed already; the hint lags (perhaps because a process died before it moved it).
        help(hint, ticket, beyond(ticket, state, from));
      } else {
        // Case 3: the cell is not there yet: full for a producer, empty for a consumer. Only if the hint
        // has not moved is that about the right cell.
        if (hint.load(std::memory_order_acquire) == ticket.word) return Outcome::kBlocked;
      }
    }
  }

  /// The first ticket that may not be claimed (taken) yet, as far as the state of this one's cell tells. By I3 all
  /// before one that was claimed (taken) were so too.
  RingTicket beyond(RingTicket ticket, CellState state, CellState::Phase from) const {
    const std::uint64_t done = state.phase() > from ? state.lap() : state.lap() - 1;
    return RingTicket::make(done, ticket.index()).next(capacity_);
  }
  void help(Word& hint, RingTicket ticket, RingTicket target) {
    std::uint64_t expected = ticket.word;
    // rel: who reads the hint sees the states that it passed over. acq: this one goes on from there.
    hint.compare_exchange_strong(expected, target.word, std::memory_order_acq_rel);
  }

  Word& tail_;
  Word& head_;
  Cells cells_;
  std::uint32_t capacity_;
};

}  // namespace shoal
