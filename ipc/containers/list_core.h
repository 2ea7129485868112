// A list of messages: what List is made of.
#pragma once

#include <shoal/internal/ipc/containers/container.h>
#include <shoal/internal/ipc/containers/parcel.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace shoal {

class LockedShelf;

/// Values as bytes and holds, on one shelf whose slots are in order, without a gap. A handle. Threads and processes:
/// any, at once. Every function has happened or has not when its process is killed: those that move values make a table
/// of their own, which becomes the list's by one store. An index below 0 counts from the end. Throws std::out_of_range
/// for one that is not there.
class ListCore {
 public:
  static ListCore create(std::uint64_t schema) { return ListCore(Container::create(ContainerKind::kList, schema, 1)); }
  explicit ListCore(Container container) : container_(std::move(container)) {}
  const Container& container() const { return container_; }

  void get(std::ptrdiff_t index, Entry& entry) const;
  void set(std::ptrdiff_t index, Encoder& value);
  void append(Encoder& value);
  /// Before the value at the index; before the first or after the last one if there is none.
  void insert(std::ptrdiff_t index, Encoder& value);
  void take(std::ptrdiff_t index, const Taken& taken);
  /// Values from `first` on, up to the one before `last`, become these, which Shelf::kept_header names. Indices beyond
  /// the ends mean the ends.
  void splice(std::ptrdiff_t first, std::ptrdiff_t last, std::vector<Hold> parcels);
  /// A parcel that splice() takes. Throws OutOfSharedMemory.
  Hold make(Encoder& value) const;
  /// Calls change(entry, next) with the lock held: what is written to next becomes the value. Returns the new value if it
  /// brought handles; see DictCore::put.
  using Change = std::function<void(const Entry& now, Encoder& next)>;
  Entry update(std::ptrdiff_t index, const Change& change);
  /// Calls order(entries) with the lock held, which returns the places in their new order.
  using Order = std::function<std::vector<std::size_t>(std::span<const Entry> entries)>;
  void reorder(const Order& order);
  /// Takes out the first value for which matches(entry), which is called with the lock held. False if there is none.
  using Matches = std::function<bool(const Entry& entry)>;
  bool remove_first(const Matches& matches);

  std::size_t size() const;
  void clear();
  /// A hold on each of the values from `first` on, up to the one before `last`, at one moment.
  std::vector<Entry> snapshot(std::ptrdiff_t first, std::ptrdiff_t last) const;

 private:
  static std::vector<Entry> entries_of(const LockedShelf& shelf, std::size_t first, std::size_t count);
  static void replace(LockedShelf& shelf, std::size_t first, std::size_t count, std::vector<Hold> parcels);
  static void erase(LockedShelf& shelf, std::size_t index);

  Container container_;
};

}  // namespace shoal
