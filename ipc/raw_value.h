// One value in shared memory, without a lock.
#pragma once

#include <shoal/ipc/raw_array.h>

#include <utility>

namespace shoal {

/// A T in shared memory, like multiprocessing.RawValue: `*value` and `value->` access that memory itself, and nothing
/// locks it or makes it atomic (see RawArray). Value has a lock, and survives a writer that is killed half-way.
template <SharedType T>
class RawValue {
 public:
  using value_type = T;

  explicit RawValue(const T& initial = T()) : place_{initial} {}  ///< a new one with this value

  T& operator*() const noexcept { return place_[0]; }       ///< the value in shared memory
  T* operator->() const noexcept { return place_.data(); }  ///< a member of the value in shared memory
  T value() const { return place_[0]; }                     ///< a copy, which a writer may have half-changed
  // NOLINTNEXTLINE(misc-unconventional-assign-operator): it does return *this.
  RawValue& operator=(const T& value) { return place_[0] = value, *this; }  ///< writes the value in place

 private:
  friend struct Codec<RawValue>;
  explicit RawValue(RawArray<T> place) : place_(std::move(place)) {}

  RawArray<T> place_;  // of one element
};

template <class T>
struct Codec<RawValue<T>> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::RawValue", shared_type::hash<T>()); }
  static void encode(Encoder& encoder, const RawValue<T>& value) { shoal::encode(encoder, value.place_); }
  static RawValue<T> decode(Decoder& decoder) {
    auto place = shoal::decode<RawArray<T>>(decoder);
    if (place.size() != 1) throw DecodeError("this block of shared memory is no single value");
    return RawValue<T>(std::move(place));
  }
};

}  // namespace shoal
