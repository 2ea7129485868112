#include <shoal/internal/ipc/containers/list_core.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/containers/all_shelves.h>
#include <shoal/internal/ipc/containers/shelf.h>
#include <shoal/internal/ipc/process/session.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace shoal {
namespace {

std::size_t size_of(const LockedShelf& shelf) { return shelf.layout().live; }

/// The place that an index means; the index may be below 0.
std::size_t place_of(std::ptrdiff_t index, std::size_t size) {
  const std::ptrdiff_t place = index < 0 ? index + std::ptrdiff_t(size) : index;
  if (place < 0 || std::size_t(place) >= size)
    throw std::out_of_range(fmt::format("List: index {} of a list of {}", index, size));
  return std::size_t(place);
}

/// Likewise, of a border between values.
std::size_t border_of(std::ptrdiff_t index, std::size_t size) {
  const std::ptrdiff_t place = index < 0 ? index + std::ptrdiff_t(size) : index;
  return std::size_t(std::clamp<std::ptrdiff_t>(place, 0, std::ptrdiff_t(size)));
}

std::uint64_t capacity_for(std::size_t size) { return std::max(kLeastSlots, std::bit_ceil(std::uint64_t(size) + 1)); }

}  // namespace

Hold ListCore::make(Encoder& value) const {
  return make_parcel(ParcelLabel{.kept = {container_.block().value, 0, 0}}, value);
}

/// Values from `first` on, `count` of them, become the parcels: by a new table.
void ListCore::replace(LockedShelf& shelf, std::size_t first, std::size_t count, std::vector<Hold> parcels) {
  const std::size_t size = size_of(shelf);
  const std::span<Slot> old = shelf.slots();
  Hold hold = shelf.make_table(capacity_for(size - count + parcels.size()));
  Slot* slot = shelf.table_in(hold.block().value).slots();
  const auto copy = [&](std::uint64_t parcel) {
    slot++->parcel.store(parcel, std::memory_order_relaxed);  // relaxed: nobody else knows the table yet
  };
  for (std::size_t i = 0; i < first; ++i) copy(word_of(old[i]));
  for (const Hold& parcel : parcels) copy(parcel.block().value);
  for (std::size_t i = first + count; i < size; ++i) copy(word_of(old[i]));
  SHOAL_KILL_POINT("list.replace.filled");
  shelf.change_table(std::move(hold), parcels);
}

void ListCore::erase(LockedShelf& shelf, std::size_t index) {
  if (index + 1 < size_of(shelf)) return replace(shelf, index, 1, {});
  shelf.change(shelf.slots()[index], {});
  shelf.layout().used -= 1;
  shelf.layout().live -= 1;
}

void ListCore::get(std::ptrdiff_t index, Entry& entry) const {
  const LockedShelf shelf(container_, 0);
  entry.take(shelf.heap(), word_of(shelf.slots()[place_of(index, size_of(shelf))]));
  SHOAL_KILL_POINT("list.get.taken");
}

void ListCore::set(std::ptrdiff_t index, Encoder& value) {
  Hold parcel = make(value);
  LockedShelf shelf(container_, 0);
  shelf.change(shelf.slots()[place_of(index, size_of(shelf))], std::move(parcel));
}

void ListCore::append(Encoder& value) {
  Hold parcel = make(value);
  LockedShelf shelf(container_, 0);
  const std::size_t size = size_of(shelf);
  if (size >= shelf.slots().size()) replace(shelf, size, 0, {});  // twice as large
  shelf.change(shelf.slots()[size], std::move(parcel));
  SHOAL_KILL_POINT("list.append.changed");
  shelf.layout().used += 1;
  shelf.layout().live += 1;
}

void ListCore::insert(std::ptrdiff_t index, Encoder& value) {
  std::vector<Hold> parcels;
  parcels.push_back(make(value));
  splice(index, index, std::move(parcels));
}

void ListCore::splice(std::ptrdiff_t first, std::ptrdiff_t last, std::vector<Hold> parcels) {
  LockedShelf shelf(container_, 0);
  const std::size_t size = size_of(shelf), begin = border_of(first, size), end = std::max(begin, border_of(last, size));
  replace(shelf, begin, end - begin, std::move(parcels));
}

void ListCore::take(std::ptrdiff_t index, const Taken& taken) {
  Entry entry;
  bool shown = false;
  {
    LockedShelf shelf(container_, 0);
    const std::size_t place = place_of(index, size_of(shelf));
    entry.take(shelf.heap(), word_of(shelf.slots()[place]));
    shown = show_before_it_goes(container_, entry, taken);
    SHOAL_KILL_POINT("list.take.taken");
    erase(shelf, place);
  }
  if (!shown) taken(entry);
}

Entry ListCore::update(std::ptrdiff_t index, const Change& change) {
  // The function may put another handle in this one's place. So in those below.
  const Container container = container_;
  LockedShelf shelf(container, 0);
  Slot& slot = shelf.slots()[place_of(index, size_of(shelf))];
  Entry now;
  now.take(shelf.heap(), word_of(slot));
  Encoder next;
  {
    const UpdateMark mark(container.block());
    change(now, next);
  }
  SHOAL_KILL_POINT("list.update.changed");
  const bool is_shared = !next.handles().empty();
  Hold parcel = make_parcel(ParcelLabel{.kept = shelf.kept_header()}, next);
  Entry after;
  if (is_shared) {
    after.take(shelf.heap(), parcel.block().value);
    after.open();
  }
  shelf.change(slot, std::move(parcel));
  return after;
}

std::vector<Entry> ListCore::entries_of(const LockedShelf& shelf, std::size_t first, std::size_t count) {
  const std::size_t size = size_of(shelf), end = first + std::min(count, size - first);
  std::vector<Entry> entries;
  entries.reserve(end - first);
  for (std::size_t i = first; i < end; ++i) entries.emplace_back().take(shelf.heap(), word_of(shelf.slots()[i]));
  return entries;
}

void ListCore::reorder(const Order& order) {
  const Container container = container_;
  LockedShelf shelf(container, 0);
  const std::vector<Entry> entries = entries_of(shelf, 0, size_of(shelf));
  std::vector<std::size_t> places;
  {
    const UpdateMark mark(container.block());
    places = order(entries);
  }
  const std::span<Slot> old = shelf.slots();
  Hold hold = shelf.make_table(capacity_for(entries.size()));
  Slot* slots = shelf.table_in(hold.block().value).slots();
  for (std::size_t i = 0; i < places.size(); ++i)
    slots[i].parcel.store(word_of(old[places[i]]), std::memory_order_relaxed);  // relaxed: nobody knows the table yet
  SHOAL_KILL_POINT("list.reorder.filled");
  shelf.change_table(std::move(hold));
}

bool ListCore::remove_first(const Matches& matches) {
  const Container container = container_;
  LockedShelf shelf(container, 0);
  for (std::size_t i = 0, size = size_of(shelf); i < size; ++i) {
    Entry entry;
    entry.take(shelf.heap(), word_of(shelf.slots()[i]));
    {
      const UpdateMark mark(container.block());
      if (!matches(entry)) continue;
    }
    erase(shelf, i);
    return true;
  }
  return false;
}

std::size_t ListCore::size() const { return size_of(LockedShelf(container_, 0)); }

void ListCore::clear() { clear_all(container_); }

std::vector<Entry> ListCore::snapshot(std::ptrdiff_t first, std::ptrdiff_t last) const {
  const LockedShelf shelf(container_, 0);
  const std::size_t size = size_of(shelf), begin = border_of(first, size), end = std::max(begin, border_of(last, size));
  return entries_of(shelf, begin, end - begin);
}

}  // namespace shoal
