// Named values of any types in shared memory, like multiprocessing.Manager().Namespace(), without a server.
#pragma once

#include <fmt/format.h>
#include <shoal/internal/ipc/containers/dict_core.h>
#include <shoal/internal/ipc/containers/key_text.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// Values under names, each of a type of its own, which any threads of any processes read and change, at once. A handle,
/// with the rules of a Dict. To read a value as another type than it was written throws DecodeError.
class Namespace {
 public:
  Namespace() : core_(DictCore::create(ContainerKind::kNamespace, kSchema)) {}  ///< an empty one

  /// Gives the name a value, of whatever type it had one before. Throws OutOfSharedMemory; then nothing has changed.
  template <class T>
  void set(std::string_view name, const T& value) {
    Encoder message;
    encode(message, value);
    core_.put(key(name), message, {.schema = schema_of<T>()});
  }
  void set(std::string_view name, const char* value) { set(name, std::string(value)); }  ///< as a std::string
  /// The name's value. Throws std::out_of_range if it has none.
  template <class T>
  T get(std::string_view name) const {
    std::optional<T> value = try_get<T>(name);
    if (!value) fail_missing(name);
    return std::move(*value);
  }
  /// The name's value, if it has one.
  template <class T>
  std::optional<T> try_get(std::string_view name) const {
    Entry entry;
    if (!core_.get(key(name), &entry)) return std::nullopt;
    return value_of<T>(name, entry);
  }
  /// Waits until the name has a value. Throws TimeoutError, PeerDied.
  template <class T>
  T wait_for(std::string_view name, std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max()) const {
    Entry entry;
    if (!core_.wait_for(key(name), entry, Deadline::after(timeout)))
      throw TimeoutError(fmt::format("Namespace::wait_for: nobody has set '{}' in time", name));
    return value_of<T>(name, entry);
  }
  /// Replaces the value v by change(v), with the name's lock held. Returns the new value. `change` must not use this
  /// Namespace (that throws std::logic_error). Throws std::out_of_range if there is none.
  template <class T, class Change>
    requires std::is_invocable_r_v<T, Change&, T>
  T update(std::string_view name, Change&& change) {
    std::optional<T> after;
    const Entry there = core_.update(key(name), schema_of<T>(), [&](const Entry* now, Encoder& next) {
      if (!now) fail_missing(name);
      after.emplace(change(value_of<T>(name, *now)));
      encode(next, *after);
    });
    return there ? value_of<T>(name, there) : std::move(*after);
  }
  bool contains(std::string_view name) const { return core_.get(key(name), nullptr); }  ///< whether it has a value
  bool erase(std::string_view name) { return core_.take(key(name), nullptr); }          ///< false if it had none
  /// All names of one moment, in the order in which they came.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Entry& entry : core_.snapshot())
      names.emplace_back(reinterpret_cast<const char*>(entry.key().data()), entry.key().size());
    return names;
  }

 private:
  friend struct Codec<Namespace>;
  static constexpr std::uint64_t kSchema = schema_hash("shoal::Namespace");
  explicit Namespace(DictCore core) : core_(std::move(core)) {}

  static KeyBytes key(std::string_view name) { return KeyBytes(std::as_bytes(std::span(name))); }
  [[noreturn]] static void fail_missing(std::string_view name) {
    throw std::out_of_range(fmt::format("Namespace: '{}' has no value", name));
  }
  template <class T>
  static T value_of(std::string_view name, const Entry& entry) {
    if (entry.schema() != schema_of<T>())
      throw DecodeError(
          fmt::format("Namespace: '{}' has another type: {}", name, other_type_text(entry.schema(), schema_of<T>())));
    Decoder decoder = entry.decoder();
    T value = decode<T>(decoder);
    decoder.finish();
    return value;
  }

  DictCore core_;
};

template <>
struct Codec<Namespace> {
  static constexpr std::uint64_t schema() { return Namespace::kSchema; }
  static void encode(Encoder& encoder, const Namespace& values) { values.core_.container().encode(encoder); }
  static Namespace decode(Decoder& decoder) {
    return Namespace(DictCore(Container::decode(decoder, ContainerKind::kNamespace, Namespace::kSchema)));
  }
};

}  // namespace shoal
