// A dictionary in shared memory, like multiprocessing.Manager().dict(), without a server.
#pragma once

#include <shoal/internal/ipc/containers/dict_core.h>
#include <shoal/internal/ipc/containers/key_text.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace shoal {

namespace detail {

/// Whether equal values may be encoded to other bytes: a long double has some that mean nothing, and the order of the
/// others' elements is that of their hashes. What is made of such a type is one, too. Outer: as in schema_of.
template <class K, class... Outer>
struct HasOtherBytes;

template <class K, class... Outer>
constexpr bool has_other_bytes() {
  using Key = std::remove_cv_t<K>;
  if constexpr (is_one_of<Key, Outer...>()) {
    return false;
  } else if constexpr (requires { Codec<Key>::kMembers; }) {  // a plain aggregate
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_other_bytes<MemberOf<I, Key>, Key, Outer...>() || ...);
    }(std::make_index_sequence<Codec<Key>::kMembers>());
  } else {
    return HasOtherBytes<Key, Outer...>::value;
  }
}

template <class K, class... Outer>
struct HasOtherBytes : std::is_same<K, long double> {};
template <class T, std::size_t N, class... Outer>
struct HasOtherBytes<T[N], Outer...> : std::bool_constant<has_other_bytes<T, Outer...>()> {};
template <class T, std::size_t N, class... Outer>
struct HasOtherBytes<std::array<T, N>, Outer...> : std::bool_constant<has_other_bytes<T, Outer...>()> {};
template <template <class...> class Made, class... Of, class... Outer>
struct HasOtherBytes<Made<Of...>, Outer...> : std::bool_constant<(has_other_bytes<Of, Outer...>() || ...)> {};
template <class... T, class... Outer>
struct HasOtherBytes<std::unordered_set<T...>, Outer...> : std::true_type {};
template <class... T, class... Outer>
struct HasOtherBytes<std::unordered_multiset<T...>, Outer...> : std::true_type {};
template <class... T, class... Outer>
struct HasOtherBytes<std::unordered_map<T...>, Outer...> : std::true_type {};
template <class... T, class... Outer>
struct HasOtherBytes<std::unordered_multimap<T...>, Outer...> : std::true_type {};

}  // namespace detail

/// How an entry of a Dict lives.
struct EntryOptions {
  bool dies_with_writer = false;  ///< it goes when the process that wrote it ends, in whatever way
};

/// What a Dict had at one moment, in the order in which the keys came: an input range of std::pair<K, V>. Values are
/// decoded as they are looked at. It keeps them, whatever becomes of the Dict. One thread.
template <class K, class V>
class DictSnapshot {
 public:
  /// Decodes the entry that it stands at.
  class Iterator {
   public:
    using value_type = std::pair<K, V>;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;  ///< decoded anew at each look
    Iterator() = default;
    explicit Iterator(const Entry* at) : at_(at) {}                                                ///< standing there
    value_type operator*() const { return {DictSnapshot::key(*at_), DictSnapshot::value(*at_)}; }  ///< key and value
    Iterator& operator++() { return ++at_, *this; }                                                ///< the next entry
    Iterator operator++(int) { return Iterator(at_++); }                                           ///< the next entry
    bool operator==(const Iterator&) const = default;  ///< whether both stand at the same place

   private:
    const Entry* at_ = nullptr;
  };

  /// Of these, which have their keys (Dict::snapshot).
  explicit DictSnapshot(std::vector<Entry> entries) : entries_(std::move(entries)) {}
  Iterator begin() const { return Iterator(entries_.data()); }                  ///< the first entry
  Iterator end() const { return Iterator(entries_.data() + entries_.size()); }  ///< behind the last one
  std::size_t size() const { return entries_.size(); }                          ///< entries
  K key(std::size_t index) const { return key(entries_.at(index)); }            ///< the key of that entry
  V value(std::size_t index) const { return value(entries_.at(index)); }        ///< the value of that entry

 private:
  static K key(const Entry& entry) {
    Decoder decoder(entry.key(), {});
    return decode<K>(decoder);
  }
  static V value(const Entry& entry) {
    Decoder decoder = entry.decoder();
    return decode<V>(decoder);
  }

  std::vector<Entry> entries_;
};

/// Values under keys, which any threads of any processes read and change, at once. A handle: copies refer to the same
/// dictionary, also in other processes, and it crosses in messages. When the last handle of all processes is gone, so
/// is the memory.
///
/// - A value is copied in and out, as by a Queue; tensors and other handles are not copied, but shared. What a process
///   does to a value that it got, others do not see before it puts that back (see update).
/// - Each call happens at one moment. If a process is killed in the middle of one, that call has happened or has not.
/// - Two keys are one if they are encoded to the same bytes. A key brings no handle, and has at most 16 MiB: else
///   std::invalid_argument.
/// - A process that is stopped (SIGSTOP) in the middle of a call keeps its lock; others wait for it.
/// - A Dict inside itself keeps itself alive for the session's life.
template <class K, class V>
class Dict {
  static_assert(
      !detail::has_other_bytes<K>(),
      "shoal: equal keys of this type (K above), or of one that it is made of, may be encoded to other bytes: "
      "use a double, a std::map or a std::set");

 public:
  using key_type = K;            ///< of keys
  using mapped_type = V;         ///< of values
  using Item = std::pair<K, V>;  ///< a key with its value

  /// An empty one. Throws OutOfSharedMemory, as does all that puts something into it, which is then as it was.
  Dict() : core_(DictCore::create(ContainerKind::kDict, schema())) {}
  Dict(std::initializer_list<Item> items) : Dict() { update(items); }  ///< with these

  /// Puts the value under the key, in place of what was there.
  void set(const K& key, const V& value, const EntryOptions& options = {}) {
    Encoder message;
    encode(message, value);
    core_.put(Key(key).bytes, message, {.mortal = options.dies_with_writer});
  }
  /// The value under the key. Throws std::out_of_range if there is none.
  V get(const K& key) const { return must(key, try_get(key), "get"); }
  /// The value under the key, or else this one.
  V get(const K& key, V otherwise) const { return try_get(key).value_or(std::move(otherwise)); }
  /// The value under the key, if there is one.
  std::optional<V> try_get(const K& key) const {
    Entry entry;
    if (!core_.get(Key(key).bytes, &entry)) return std::nullopt;
    return value_of(entry);
  }
  /// The value under the key; if there is none, this one, which is put there. Returns what get() returns then: a tensor
  /// in shared memory.
  V setdefault(const K& key, const V& value, const EntryOptions& options = {}) {
    Encoder message;
    encode(message, value);
    Entry there;
    core_.put(Key(key).bytes, message, {.mortal = options.dies_with_writer, .if_absent = true}, &there);
    return there ? value_of(there) : value;
  }
  bool contains(const K& key) const { return core_.get(Key(key).bytes, nullptr); }  ///< whether the key is there

  /// Takes the value out. Throws std::out_of_range if there is none.
  V pop(const K& key) { return must(key, try_pop(key), "pop"); }
  /// Takes the value out; returns this one if there is none.
  V pop(const K& key, V otherwise) { return try_pop(key).value_or(std::move(otherwise)); }
  /// Takes the value out, if there is one.
  std::optional<V> try_pop(const K& key) {
    std::optional<V> value;
    core_.take(Key(key).bytes, [&](const Entry& entry) { value.emplace(value_of(entry)); });
    return value;
  }
  /// Takes out the entry whose key came last. Throws std::out_of_range if there is none.
  Item popitem() {
    std::optional<Item> last;
    core_.take_last([&](const Entry& entry) { last.emplace(*typename Snapshot::Iterator(&entry)); });
    if (!last) throw std::out_of_range("Dict::popitem: the dictionary is empty");
    return *std::move(last);
  }
  /// Removes the key. False if it is not there.
  bool erase(const K& key) { return core_.take(Key(key).bytes, nullptr); }
  void clear() { core_.clear(); }  ///< removes all, at once

  /// Replaces the value v by change(v), with the key's lock held: nobody changes it in between. Returns the new value, as
  /// get() does.
  /// If `change` throws, or its process is killed, the old value stays. `change` must not use this Dict (that throws
  /// std::logic_error), and should be short: keys that share the lock wait. Throws std::out_of_range if there is none.
  template <class Change>
    requires std::is_invocable_r_v<V, Change&, V>
  V update(const K& key, Change&& change) {
    return update_from(key, std::forward<Change>(change), nullptr);
  }
  /// The same, from the value `initial` if there is none.
  template <class Change>
    requires std::is_invocable_r_v<V, Change&, V>
  V update(const K& key, Change&& change, const V& initial) {
    return update_from(key, std::forward<Change>(change), &initial);
  }
  /// Sets all pairs of a range (a std::map, say), one after the other: others may see some of them, and if this process
  /// is killed some are there.
  template <class Items>
    requires requires(const Items& items) { items.begin()->first; }
  void update(const Items& items) {
    for (const auto& [key, value] : items) set(key, value);
  }
  void update(std::initializer_list<Item> items) { update<std::initializer_list<Item>>(items); }  ///< of these

  /// Waits until there is a value under the key, and returns it. Throws PeerDied if processes that had the Dict crashed
  /// and only the caller's still has it.
  V wait_for(const K& key) const { return wait_until(key, Deadline::never()); }
  /// The same; throws TimeoutError after `timeout`.
  V wait_for(const K& key, std::chrono::nanoseconds timeout) const { return wait_until(key, Deadline::after(timeout)); }

  std::size_t size() const { return core_.size(); }  ///< entries, at one moment
  bool empty() const { return size() == 0; }         ///< whether there is none

  using Snapshot = DictSnapshot<K, V>;                              ///< what it had at one moment
  Snapshot snapshot() const { return Snapshot(core_.snapshot()); }  ///< all entries of one moment
  /// All entries of one moment, in the order in which the keys came.
  std::vector<Item> items() const {
    const Snapshot now = snapshot();
    return {now.begin(), now.end()};
  }
  /// All keys of one moment, in the order in which they came.
  std::vector<K> keys() const {
    const Snapshot now = snapshot();
    std::vector<K> keys;
    for (std::size_t i = 0; i < now.size(); ++i) keys.push_back(now.key(i));
    return keys;
  }
  /// All values of one moment, in the order in which their keys came.
  std::vector<V> values() const {
    const Snapshot now = snapshot();
    std::vector<V> values;
    for (std::size_t i = 0; i < now.size(); ++i) values.push_back(now.value(i));
    return values;
  }

 private:
  friend struct Codec<Dict>;
  explicit Dict(DictCore core) : core_(std::move(core)) {}
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Dict", schema_of<K>(), schema_of<V>()); }

  /// A key's bytes, as long as this object lives.
  struct Key {
    explicit Key(const K& key) : bytes(encoded(key)) {}
    std::span<const std::byte> encoded(const K& key) {
      encode(encoder, key);
      if (!encoder.handles().empty())
        throw std::invalid_argument("Dict: a key that brings a handle (a tensor, a queue) cannot be compared");
      return encoder.bytes();
    }
    Encoder encoder;
    KeyBytes bytes;
  };

  static V value_of(const Entry& entry) {
    Decoder decoder = entry.decoder();
    V value = decode<V>(decoder);
    decoder.finish();
    return value;
  }
  static V must(const K& key, std::optional<V> value, const char* call) {
    if (!value)
      throw std::out_of_range(
          fmt::format("Dict::{0}: there is no {1}: {0}(key, otherwise) and try_{0} may miss it", call, key_text(key)));
    return std::move(*value);
  }
  template <class Change>
  V update_from(const K& key, Change&& change, const V* initial) {
    std::optional<V> after;
    const Entry there = core_.update(Key(key).bytes, 0, [&](const Entry* now, Encoder& next) {
      if (!now && !initial)
        throw std::out_of_range(fmt::format(
            "Dict::update: there is no {}: update(key, change, initial) begins with a value", key_text(key)));
      after.emplace(change(now ? value_of(*now) : *initial));
      encode(next, *after);
    });
    return there ? value_of(there) : std::move(*after);
  }
  V wait_until(const K& key, Deadline deadline) const {
    Entry entry;
    if (!core_.wait_for(Key(key).bytes, entry, deadline))
      throw TimeoutError(fmt::format("Dict::wait_for: nobody has set {} in time", key_text(key)));
    return value_of(entry);
  }

  DictCore core_;
};

template <class K, class V>
struct Codec<Dict<K, V>> {
  template <class... Outer>
  static constexpr std::uint64_t schema() {
    return schema_hash("shoal::Dict", schema_of<K, Outer...>(), schema_of<V, Outer...>());
  }
  static void encode(Encoder& encoder, const Dict<K, V>& dict) { dict.core_.container().encode(encoder); }
  static Dict<K, V> decode(Decoder& decoder) {
    return Dict<K, V>(DictCore(Container::decode(decoder, ContainerKind::kDict, Dict<K, V>::schema())));
  }
};

}  // namespace shoal
