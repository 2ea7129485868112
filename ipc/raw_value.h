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

  explicit RawValue(const T& initial = T()) : place_{initial} {}

  T& operator*() const noexcept { return place_[0]; }
  T* operator->() const noexcept { return place_.data(); }
  T value() const { return place_[0]; }
  RawValue& operator=(const T& value) { return place_[0] = value, *this; }

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
