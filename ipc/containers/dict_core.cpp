#include <shoal/internal/ipc/containers/dict_core.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/containers/all_shelves.h>
#include <shoal/internal/ipc/containers/shelf.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/ipc/wait/wait.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace shoal {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return std::uint64_t(product) ^ std::uint64_t(product >> 64);
}

/// Eight bytes at a time, each folded in by a long multiplication (as wyhash does).
std::uint64_t hash_of(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0x9e3779b97f4a7c15ull ^ bytes.size();
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min<std::size_t>(8, bytes.size());
    std::memcpy(&word, bytes.data(), size);
    hash = mix(hash ^ word, 0xa0761d6478bd642full);
    bytes = bytes.subspan(size);
  }
  return mix(hash, 0xe7037ed1a0b428dbull);
}

bool is_taken(std::uint64_t word) { return word > Slot::kRemoved; }

/// The first slot of a search for the hash.
std::size_t first_slot(std::uint64_t hash, std::size_t capacity) { return hash & (capacity - 1); }

}  // namespace

KeyBytes::KeyBytes(std::span<const std::byte> key) : bytes(key), hash(0) {
  if (key.size() > kMost)
    throw std::invalid_argument(fmt::format("a key of {} bytes: a key has at most {}; put what is long into the value",
                                            key.size(), std::size_t(kMost)));
  hash = hash_of(key);
}

// ---------------------------------------------------------------- a shelf's table, under its lock

Slot* DictCore::find(const LockedShelf& shelf, const KeyBytes& key) {
  const std::span<Slot> slots = shelf.slots();
  if (slots.empty()) return nullptr;
  // Ends at an empty slot: a table is never full (make_room).
  for (std::size_t i = first_slot(key.hash, slots.size());; i = (i + 1) & (slots.size() - 1)) {
    const std::uint64_t word = word_of(slots[i]);
    if (word == Slot::kEmpty) return nullptr;
    if (word == Slot::kRemoved || slots[i].hash != key.hash) continue;
    ParcelLayout& parcel = shelf.parcel(word);
    if (parcel.key_bytes == key.bytes.size() && std::memcmp(parcel.key(), key.bytes.data(), key.bytes.size()) == 0)
      return &slots[i];
  }
}

void DictCore::make_room(LockedShelf& shelf) {
  const std::span<Slot> old = shelf.slots();
  if ((shelf.layout().used + 1) * 4 <= old.size() * 3) return;
  // At most half full afterwards. If many were removed, it may become smaller.
  const std::uint64_t capacity = std::max(kLeastSlots, std::bit_ceil((shelf.layout().live + 1) * 2));
  Hold hold = shelf.make_table(capacity);
  const std::span<Slot> slots(shelf.table_in(hold.block().value).slots(), capacity);
  for (const Slot& slot : old) {
    if (!is_taken(word_of(slot))) continue;
    std::size_t i = first_slot(slot.hash, capacity);
    while (word_of(slots[i]) != Slot::kEmpty) i = (i + 1) & (capacity - 1);
    slots[i].hash = slot.hash;
    slots[i].parcel.store(word_of(slot), std::memory_order_relaxed);  // relaxed: nobody else knows the table yet
  }
  SHOAL_KILL_POINT("dict.grow.filled");
  shelf.change_table(std::move(hold));
}

void DictCore::place(LockedShelf& shelf, Slot* found, const KeyBytes& key, Hold parcel) {
  ParcelLayout& fresh = shelf.parcel(parcel.block().value);
  ShelfLayout& counts = shelf.layout();
  if (found) {
    const ParcelLayout& old = shelf.parcel(word_of(*found));
    fresh.order = old.order;
    const std::uint64_t mortal = counts.mortal - (old.mortal != 0) + (fresh.mortal != 0);
    shelf.change(*found, std::move(parcel));
    counts.mortal = mortal;
    return;
  }
  make_room(shelf);
  fresh.order = shelf.container().order.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number
  const std::span<Slot> slots = shelf.slots();
  std::size_t i = first_slot(key.hash, slots.size());
  while (is_taken(word_of(slots[i]))) i = (i + 1) & (slots.size() - 1);
  const bool was_empty = word_of(slots[i]) == Slot::kEmpty;
  const bool mortal = fresh.mortal != 0;
  slots[i].hash = key.hash;  // believed only with a parcel beside it
  SHOAL_KILL_POINT("dict.put.hashed");
  shelf.change(slots[i], std::move(parcel));
  counts.used += was_empty;
  counts.live += 1;
  counts.mortal += mortal;
}

void DictCore::remove(LockedShelf& shelf, Slot& slot) {
  const bool mortal = shelf.parcel(word_of(slot)).mortal != 0;
  shelf.change(slot, {}, Slot::kRemoved);
  shelf.layout().live -= 1;
  shelf.layout().mortal -= mortal;
}

namespace {

/// A slot whose parcel is there only as long as a process is, which is dead, is as good as none.
bool has_gone(const LockedShelf& shelf, const Slot& slot) {
  return shelf.layout().mortal != 0 && Shelf::has_ended(shelf.parcel(word_of(slot)));
}

}  // namespace

Slot* DictCore::find_living(LockedShelf& shelf, const KeyBytes& key) {
  Slot* slot = find(shelf, key);
  if (!slot || !has_gone(shelf, *slot)) return slot;
  remove(shelf, *slot);
  return nullptr;
}

// ---------------------------------------------------------------- operations

bool DictCore::get(const KeyBytes& key, Entry* entry) const {
  LockedShelf shelf(container_, shelf_of(key));
  Slot* slot = find_living(shelf, key);
  if (!slot) return false;
  if (entry) entry->take(shelf.heap(), word_of(*slot));
  SHOAL_KILL_POINT("dict.get.taken");
  return true;
}

bool DictCore::wait_for(const KeyBytes& key, Entry& entry, Deadline deadline) const {
  EventWord& changed = container_->shelf(shelf_of(key))->changed;
  const auto is_there = [&] { return get(key, &entry); };
  const auto alone = [&] { return left_alone(container_.block(), container_->crashes); };
  switch (wait_until_ready(changed, deadline, is_there, alone)) {
    case Waited::kReady:
      return true;
    case Waited::kTimedOut:
      return false;
    case Waited::kHopeless:
      break;
  }
  throw PeerDied("wait_for: the other processes that had the dictionary are dead");
}

bool DictCore::put(const KeyBytes& key, Encoder& value, const PutOptions& options, Entry* present) {
  const std::uint32_t index = shelf_of(key);
  const ParcelLabel label{.kept = {container_.block().value, index, 0},
                          .schema = options.schema,
                          .key = key.bytes,
                          .hash = key.hash,
                          .mortal = options.mortal ? Session::current().self().word() : 0};
  const bool is_shared = !value.handles().empty();
  Hold parcel = make_parcel(label, value);
  SHOAL_KILL_POINT("dict.put.made");
  {
    LockedShelf shelf(container_, index);
    Slot* slot = find(shelf, key);
    if (slot && options.if_absent && !has_gone(shelf, *slot)) {
      if (present) present->take(shelf.heap(), word_of(*slot));
      return false;
    }
    if (present && is_shared) {
      present->take(shelf.heap(), parcel.block().value);
      present->open();
    }
    place(shelf, slot, key, std::move(parcel));
    SHOAL_KILL_POINT("dict.put.placed");
  }
  SHOAL_KILL_POINT("dict.put.before_notify");
  container_->shelf(index)->changed.notify_all();
  return true;
}

bool DictCore::take(const KeyBytes& key, const Taken& taken) {
  Entry entry;
  bool shown = !taken;
  {
    LockedShelf shelf(container_, shelf_of(key));
    Slot* slot = find_living(shelf, key);
    if (!slot) return false;
    if (!shown) {
      entry.take(shelf.heap(), word_of(*slot));
      shown = show_before_it_goes(container_, entry, taken);
    }
    remove(shelf, *slot);
  }
  if (!shown) taken(entry);
  return true;
}

bool DictCore::take_last(const Taken& taken) {
  Entry entry;
  bool shown = false;
  {
    AllShelves shelves(container_);
    LockedShelf* last_shelf = nullptr;
    Slot* last = nullptr;
    for (std::uint32_t i = 0; i < shelves.count(); ++i) {
      if (shelves[i].layout().mortal != 0) shelves[i].sweep();
      for (Slot& slot : shelves[i].slots()) {
        if (!is_taken(word_of(slot))) continue;
        if (last && shelves[i].parcel(word_of(slot)).order < last_shelf->parcel(word_of(*last)).order) continue;
        last_shelf = &shelves[i];
        last = &slot;
      }
    }
    if (!last) return false;
    entry.take_with_key(last_shelf->heap(), word_of(*last));
    shown = show_before_it_goes(container_, entry, taken);
    remove(*last_shelf, *last);
  }
  if (!shown) taken(entry);
  return true;
}

Entry DictCore::update(const KeyBytes& key, std::uint64_t schema, const Change& change) {
  // The function may put another handle in this one's place.
  const Container container = container_;
  const std::uint32_t index = shelf_of(key);
  Entry after;
  {
    LockedShelf shelf(container, index);
    Slot* slot = find_living(shelf, key);
    Entry now;
    if (slot) now.take(shelf.heap(), word_of(*slot));
    Encoder next;
    {
      const UpdateMark mark(container.block());
      change(slot ? &now : nullptr, next);
    }
    const ParcelLabel label{.kept = shelf.kept_header(),
                            .schema = schema,
                            .key = key.bytes,
                            .hash = key.hash,
                            .mortal = slot ? shelf.parcel(word_of(*slot)).mortal : 0};
    SHOAL_KILL_POINT("dict.update.changed");
    const bool is_shared = !next.handles().empty();
    Hold parcel = make_parcel(label, next);
    if (is_shared) {
      after.take(shelf.heap(), parcel.block().value);
      after.open();
    }
    place(shelf, slot, key, std::move(parcel));
    SHOAL_KILL_POINT("dict.update.placed");
  }
  container->shelf(index)->changed.notify_all();
  return after;
}

std::size_t DictCore::size() const {
  AllShelves shelves(container_);
  std::size_t size = 0;
  for (std::uint32_t i = 0; i < shelves.count(); ++i) {
    if (shelves[i].layout().mortal != 0) shelves[i].sweep();
    size += shelves[i].layout().live;
  }
  return size;
}

void DictCore::clear() { clear_all(container_); }

std::vector<Entry> DictCore::snapshot() const {
  std::vector<Entry> entries;
  {
    AllShelves shelves(container_);
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < shelves.count(); ++i) {
      if (shelves[i].layout().mortal != 0) shelves[i].sweep();
      count += shelves[i].layout().live;
    }
    entries.reserve(count);
    for (std::uint32_t i = 0; i < shelves.count(); ++i)
      for (const Slot& slot : shelves[i].slots())
        if (is_taken(word_of(slot))) entries.emplace_back().take_with_key(shelves[i].heap(), word_of(slot));
    SHOAL_KILL_POINT("dict.snapshot.taken");
  }
  // By places, since an entry is large to move.
  std::vector<std::pair<std::uint64_t, std::size_t>> places;
  places.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) places.emplace_back(entries[i].order(), i);
  std::ranges::sort(places);
  std::vector<Entry> sorted;
  sorted.reserve(entries.size());
  for (const auto& [order, place] : places) sorted.push_back(std::move(entries[place]));
  return sorted;
}

}  // namespace shoal
