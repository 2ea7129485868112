// A list in shared memory, like multiprocessing.Manager().list(), without a server.
#pragma once

#include <shoal/internal/ipc/containers/list_core.h>
#include <shoal/ipc/codec.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shoal {

/// An index of a List, of any integer type. Below 0 it counts from the end, as in Python; an unsigned one that is larger
/// than any list, as a difference below 0 is, does not.
struct ListIndex {
  /// Of a number of any integer type.
  template <std::integral Integer>
  explicit(false) constexpr ListIndex(Integer index)
      : value(std::in_range<std::ptrdiff_t>(index) ? std::ptrdiff_t(index) : PTRDIFF_MAX) {}
  std::ptrdiff_t value;  ///< as Python has it
};

/// Values in order, which any threads of any processes read and change, at once. A handle: copies refer to the same
/// list, also in other processes, and it crosses in messages. When the last handle of all processes is gone, so is the
/// memory.
///
/// - A value is copied in and out, as by a Queue; tensors and other handles are not copied, but shared.
/// - Each call happens at one moment. If a process is killed in the middle of one, that call has happened or has not.
/// - An index below 0 counts from the end, as in Python. One that is not there throws std::out_of_range.
/// - append, pop() from the end, get and set cost the same however long the list is. What moves other values writes a
///   new table of 16 bytes for each, for which there has to be memory.
template <class T>
class List {
 public:
  using value_type = T;  ///< of values

  /// An empty one. Throws OutOfSharedMemory, as does all that puts something into it, which is then as it was.
  List() : core_(ListCore::create(schema())) {}
  List(std::initializer_list<T> values) : List() { extend(values); }        ///< with these
  explicit List(const std::vector<T>& values) : List() { extend(values); }  ///< with these

  /// The value at the index.
  T get(ListIndex index) const {
    Entry entry;
    core_.get(index.value, entry);
    return value_of(entry);
  }
  T operator[](ListIndex index) const { return get(index); }  ///< get()
  /// Replaces the value at the index.
  void set(ListIndex index, const T& value) {
    Encoder message;
    encode(message, value);
    core_.set(index.value, message);
  }
  /// Replaces the value v by change(v), with the list's lock held. Returns the new value, as get() does. If `change`
  /// throws, the old value stays. `change` must not use this list (that throws std::logic_error).
  template <class Change>
    requires std::is_invocable_r_v<T, Change&, T>
  T update(ListIndex index, Change&& change) {
    std::optional<T> after;
    const Entry there = core_.update(index.value, [&](const Entry& now, Encoder& next) {
      after.emplace(change(value_of(now)));
      encode(next, *after);
    });
    return there ? value_of(there) : std::move(*after);
  }

  /// Adds a value at the end.
  void append(const T& value) {
    Encoder message;
    encode(message, value);
    core_.append(message);
  }
  /// Adds all values of a range at the end, at once.
  template <class Values = std::initializer_list<T>>
  void extend(const Values& values) {
    core_.splice(PTRDIFF_MAX, PTRDIFF_MAX, parcels_of(values));
  }
  /// Adds a value before the one at the index; at the beginning or the end if that is beyond it.
  void insert(ListIndex index, const T& value) {
    Encoder message;
    encode(message, value);
    core_.insert(index.value, message);
  }
  /// The values from `first` on, up to the one before `last`, become these: Python's l[first:last] = values. Indices
  /// beyond the ends mean the ends, here and in all slices.
  template <class Values = std::initializer_list<T>>
  void replace(ListIndex first, ListIndex last, const Values& values) {
    core_.splice(first.value, last.value, parcels_of(values));
  }
  /// Removes the values from `first` on, up to the one before `last`: del l[first:last].
  void erase(ListIndex first, ListIndex last) { replace(first, last, {}); }
  /// Takes the value out; by default the last one.
  T pop(ListIndex index = -1) {
    std::optional<T> value;
    core_.take(index.value, [&](const Entry& entry) { value.emplace(value_of(entry)); });
    return *std::move(value);
  }
  /// Removes the first value that is equal. False if there is none.
  bool remove(const T& value)
    requires std::equality_comparable<T>
  {
    return core_.remove_first([&](const Entry& entry) { return value_of(entry) == value; });
  }
  void clear() { core_.clear(); }  ///< removes all, at once

  /// Turns the order round.
  void reverse() {
    core_.reorder([](std::span<const Entry> entries) {
      std::vector<std::size_t> places(entries.size());
      std::iota(places.rbegin(), places.rend(), std::size_t(0));
      return places;
    });
  }
  /// Sorts, with the list's lock held. Equal values keep their order. `less` must not use this list.
  template <class Less = std::less<>>
  void sort(Less less = {}) {
    core_.reorder([&](std::span<const Entry> entries) {
      std::vector<T> values;
      values.reserve(entries.size());
      for (const Entry& entry : entries) values.push_back(value_of(entry));
      std::vector<std::size_t> places(entries.size());
      std::iota(places.begin(), places.end(), std::size_t(0));
      std::stable_sort(places.begin(), places.end(),
                       [&](std::size_t a, std::size_t b) { return bool(less(values[a], values[b])); });
      return places;
    });
  }

  /// The values from `first` on, up to the one before `last`, at one moment: l[first:last].
  std::vector<T> slice(ListIndex first, ListIndex last = PTRDIFF_MAX) const {
    const std::vector<Entry> entries = core_.snapshot(first.value, last.value);
    std::vector<T> values;
    values.reserve(entries.size());
    for (const Entry& entry : entries) values.push_back(value_of(entry));
    return values;
  }
  std::vector<T> items() const { return slice(0); }  ///< all values of one moment
  /// The first place of an equal value; nothing if there is none.
  std::optional<std::size_t> index(const T& value) const
    requires std::equality_comparable<T>
  {
    const std::vector<T> values = items();
    const auto found = std::find(values.begin(), values.end(), value);
    return found == values.end() ? std::nullopt : std::optional(std::size_t(found - values.begin()));
  }
  /// How many values are equal.
  std::size_t count(const T& value) const
    requires std::equality_comparable<T>
  {
    const std::vector<T> values = items();
    return std::size_t(std::count(values.begin(), values.end(), value));
  }
  /// Whether a value is equal.
  bool contains(const T& value) const
    requires std::equality_comparable<T>
  {
    return index(value).has_value();
  }

  std::size_t size() const { return core_.size(); }  ///< values, at one moment
  bool empty() const { return size() == 0; }         ///< whether there is none

 private:
  friend struct Codec<List>;
  explicit List(ListCore core) : core_(std::move(core)) {}
  static constexpr std::uint64_t schema() { return schema_hash("shoal::List", schema_of<T>()); }

  static T value_of(const Entry& entry) {
    Decoder decoder = entry.decoder();
    T value = decode<T>(decoder);
    decoder.finish();
    return value;
  }
  template <class Values>
  std::vector<Hold> parcels_of(const Values& values) const {
    std::vector<Hold> parcels;
    for (const T& value : values) {
      Encoder message;
      encode(message, value);
      parcels.push_back(core_.make(message));
    }
    return parcels;
  }

  ListCore core_;
};

template <class T>
struct Codec<List<T>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("shoal::List", schema_of<T, Outer...>());
  }
  static void encode(Encoder& encoder, const List<T>& list) { list.core_.container().encode(encoder); }
  static List<T> decode(Decoder& decoder) {
    return List<T>(ListCore(Container::decode(decoder, ContainerKind::kList, List<T>::schema())));
  }
};

}  // namespace shoal
