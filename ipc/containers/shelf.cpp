#include <shoal/internal/ipc/containers/shelf.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/extents.h>
#include <shoal/internal/ipc/process/session_core.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

/// Whether a word of a slot or of a shelf names a block.
bool is_block(std::uint64_t word) { return word > Slot::kRemoved; }

constinit thread_local const UpdateMark* innermost = nullptr;

}  // namespace

// ---------------------------------------------------------------- changes

void Shelf::change(Slot& slot, Hold comes, std::uint64_t otherwise) noexcept {
  const std::uint64_t came = comes ? comes.block().value : otherwise;
  make_change(slot.parcel, came, ChangeKind::kBlock, std::move(comes), {});
}

void Shelf::change_table(Hold comes, std::span<Hold> parcels) noexcept {
  const auto kind = layout_.kind == ContainerKind::kArena ? ChangeKind::kBlock : ChangeKind::kContents;
  const std::uint64_t came = comes.block().value;
  make_change(shelf_.table, came, kind, std::move(comes), parcels);
  recount();
}

void Shelf::make_change(std::atomic<std::uint64_t>& word, std::uint64_t came, ChangeKind kind, Hold comes,
                        std::span<Hold> parcels) noexcept {
  const std::uint64_t went = word.load(std::memory_order_relaxed);  // relaxed: under the lock
  const auto* place = reinterpret_cast<const std::byte*>(&word);
  // R1: each after those above it, and the first one after the note before was taken back (R3).
  shelf_.place.store(std::uint64_t(place - heap_.memory().base()), std::memory_order_release);
  SHOAL_KILL_POINT("container.change.noting");
  shelf_.came.store(came, std::memory_order_release);  // R1
  SHOAL_KILL_POINT("container.change.noting");
  shelf_.went.store(went, std::memory_order_release);  // R1
  SHOAL_KILL_POINT("container.change.noting");
  shelf_.kind.store(kind, std::memory_order_release);  // R1
  SHOAL_KILL_POINT("container.change.noting");
  shelf_.changing.store(1, std::memory_order_release);  // R1: the note is whole
  SHOAL_KILL_POINT("container.change.noted");
  // The table first: an heir finds in it which parcels were given besides.
  if (comes) give(std::move(comes));
  SHOAL_KILL_POINT("container.change.given");
  for (Hold& parcel : parcels) {
    give(std::move(parcel));
    SHOAL_KILL_POINT("container.change.given_parcel");
  }
  // R2: after the note, and after what it names was given. Also for who reads an arena's `table` without the lock (A3).
  word.store(came, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // F1: no mark is made before it (drop)
  SHOAL_KILL_POINT("container.change.stored");
  drop(went, came, kind);
  SHOAL_KILL_POINT("container.change.dropped");
  shelf_.changing.store(0, std::memory_order_release);  // R3: after the drops
  // F2: nor is what the caller writes then: a shelf's `epoch` says that the change was made.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void Shelf::settle() noexcept {
  // A1, six times: pairs with R1, so that the words belong to one note; the last one with R2. The dead one may have been
  // an heir, too: then its R3 comes before.
  if (shelf_.changing.load(std::memory_order_acquire) == 0) return;
  const std::uint64_t came = shelf_.came.load(std::memory_order_acquire);                    // A1
  const std::uint64_t went = shelf_.went.load(std::memory_order_acquire);                    // A1
  const auto* place = heap_.memory().base() + shelf_.place.load(std::memory_order_acquire);  // A1
  const ChangeKind kind = shelf_.kind.load(std::memory_order_acquire);                       // A1
  const auto& word = *reinterpret_cast<const std::atomic<std::uint64_t>*>(place);
  const std::uint64_t now = word.load(std::memory_order_acquire);  // A1: with R2
  SHOAL_KILL_POINT("container.settle.begun");
  // The word decides. It was never the same before and after.
  if (now == came)
    drop(went, came, kind);
  else
    drop(came, went, kind);
  SHOAL_KILL_POINT("container.settle.dropped");
  shelf_.changing.store(0, std::memory_order_release);  // R3: after the drops
  std::atomic_signal_fence(std::memory_order_seq_cst);  // F2, as in make_change
}

bool Shelf::keeps(std::uint64_t block) const noexcept {
  if (!is_block(block)) return false;
  const HoldRef given{BlockOffset{block}};
  const auto& state = heap_.memory().header(given.block).state;
  for (;;) {
    // A4: what is read below is of this life of the block, or of a later one. The count never comes back (I3 of
    // BlockHeader).
    const std::uint64_t before = state.load(std::memory_order_acquire);
    if (!heap_.is_hold(given, layout_.owner)) return false;
    SHOAL_KILL_POINT("container.keeps.seen");
    // The block may have gone long ago and be another shelf's parcel, or have gone since and be one that somebody makes
    // for this shelf.
    auto& kept = *reinterpret_cast<KeptHeader*>(heap_.memory().payload(given.block));
    // acquire, both: the state is read after them.
    const std::uint64_t container = std::atomic_ref(kept.container).load(std::memory_order_acquire);
    const std::uint32_t shelf = std::atomic_ref(kept.shelf).load(std::memory_order_acquire);  // acquire: likewise
    // A4: unchanged, so the word was the container's in the life that the parcel says this of. It stays so, since nobody
    // gives or drops what is this shelf's without the lock. Changed: somebody took a hold, or that life is over.
    if (state.load(std::memory_order_acquire) == before) return container == container_.value && shelf == index_;
  }
}

void Shelf::drop(std::uint64_t loser, std::uint64_t winner, ChangeKind kind) noexcept {
  if (!keeps(loser)) return;
  if (kind == ChangeKind::kContents) {
    const auto parcels_of = [&](std::uint64_t block, auto&& visit) {
      TableLayout& table = table_in(block);
      for (Slot& slot : std::span(table.slots(), table.capacity))
        // relaxed: under the lock, or the dead one's (I2).
        if (const std::uint64_t parcel = slot.parcel.load(std::memory_order_relaxed); is_block(parcel)) visit(parcel);
    };
    const std::uint64_t mark = ++shelf_.serial;
    // F3: no mark before its number is taken: an heir would take the same one, and find marks that it has not made.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (is_block(winner)) parcels_of(winner, [&](std::uint64_t block) { parcel(block).mark = mark; });
    parcels_of(loser, [&](std::uint64_t block) {
      // Not kept: it was dropped before, or not given yet, and is reclaimed with who made it.
      if (keeps(block) && parcel(block).mark != mark) heap_.drop(HoldRef{BlockOffset{block}});
      SHOAL_KILL_POINT("container.drop.parcel");
    });
  }
  heap_.drop(HoldRef{BlockOffset{loser}});
}

void Shelf::give(Hold hold) noexcept {
  const HoldRef ref = std::move(hold).into_transit();
  // Release: the block's contents go before (A2 of the heap, in keeps()).
  heap_.memory().hold_word(ref.block, ref.word)->store(layout_.owner, std::memory_order_release);
}

Hold Shelf::make_table(std::uint64_t capacity) const {
  Hold hold = allocate_shared(TableLayout::bytes(capacity));
  auto* made = new (hold.data()) TableLayout{kept_header(), capacity, 0};
  for (Slot& slot : std::span(made->slots(), capacity)) new (&slot) Slot{};
  return hold;
}

void Shelf::recount() noexcept {
  if (layout_.kind == ContainerKind::kArena) return;
  shelf_.used = shelf_.live = shelf_.mortal = 0;
  for (const Slot& slot : slots()) {
    const std::uint64_t block = slot.parcel.load(std::memory_order_relaxed);  // relaxed: under the lock
    shelf_.used += block != Slot::kEmpty;
    shelf_.live += is_block(block);
    shelf_.mortal += is_block(block) && parcel(block).mortal != 0;
  }
}

std::uint32_t Shelf::deaths() const {
  // relaxed: a death is noticed sooner or later. Of the session, since who wrote an entry may have had no handle any
  // more when it died.
  return std::uint32_t(heap_.extents().layout().deaths.load(std::memory_order_relaxed));
}

void Shelf::sweep() {
  // At the end, and if a question to the kernel throws.
  struct Recount {
    Shelf& shelf;
    ~Recount() { shelf.recount(); }
  } const recount{*this};
  for (Slot& slot : slots()) {
    const std::uint64_t block = slot.parcel.load(std::memory_order_relaxed);  // relaxed: under the lock
    if (is_block(block) && has_ended(parcel(block))) change(slot, {}, Slot::kRemoved);
  }
}

bool Shelf::has_ended(const ParcelLayout& parcel) {
  return parcel.mortal != 0 && !Session::current().is_alive(ProcessTag::from_word(parcel.mortal));
}

// ---------------------------------------------------------------- the lock

LockedShelf::LockedShelf(const Container& container, std::uint32_t index)
    : Shelf(Session::current().heap(), container.block(), *container, index) {
  if (UpdateMark::is_set_for(container.block()))
    throw std::logic_error(
        "the function of an update, or a value's codec, uses the very container that it is called for: it would wait "
        "for "
        "itself");
  const bool inherited = *layout().lock.lock_until(Deadline::never());
  SHOAL_KILL_POINT("container.locked");
  const ShelfLayout& shelf = layout();
  // relaxed: under this lock.
  if (!inherited && shelf.changing.load(std::memory_order_relaxed) == 0 &&
      // relaxed: `epoch` changes with all locks held.
      shelf.epoch == this->container().epoch.load(std::memory_order_relaxed) &&
      (shelf.mortal == 0 || shelf.deaths == deaths())) [[likely]]
    return;
  try {
    prepare(inherited);
  } catch (...) {
    layout().lock.unlock();
    throw;
  }
}

void LockedShelf::prepare(bool inherited) {
  settle();
  if (inherited) recount();
  SHOAL_KILL_POINT("container.prepared");
  // relaxed: as in the constructor.
  const std::uint64_t epoch = container().epoch.load(std::memory_order_relaxed);
  if (layout().epoch != epoch) empty();
  layout().epoch = epoch;
  const std::uint32_t deaths_before = deaths();
  if (layout().mortal != 0 && layout().deaths != deaths_before) sweep();
  layout().deaths = deaths_before;
}

UpdateMark::UpdateMark(BlockOffset container) noexcept
    : container_(container), outer_(std::exchange(innermost, this)) {}

UpdateMark::~UpdateMark() { innermost = outer_; }

bool UpdateMark::is_set_for(BlockOffset container) noexcept {
  for (const UpdateMark* mark = innermost; mark; mark = mark->outer_)
    if (mark->container_ == container) return true;
  return false;
}

bool show_before_it_goes(const Container& container, const Entry& entry, const Taken& taken) {
  if (!entry.brings_handles()) return false;
  const UpdateMark mark(container.block());
  taken(entry);
  return true;
}

}  // namespace shoal
