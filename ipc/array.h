// An array in shared memory, with its lock.
#pragma once

#include <shoal/ipc/raw_array.h>
#include <shoal/ipc/rlock.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

namespace shoal {

/// A RawArray with the lock that protects it, like multiprocessing.Array.
///
/// The array locks nothing by itself. A process that shares elements with writers holds get_lock() while it uses them.
/// The lock is the array's own RLock, or the one given to the constructor, which several arrays may share. If a process
/// dies while it holds the lock, elements may be half-changed; the next holder learns it from lock().
template <SharedType T>
class Array : public RawArray<T> {
 public:
  /// Like RawArray's constructors.
  explicit Array(std::size_t size, RLock lock = RLock()) : RawArray<T>(size), lock_(std::move(lock)) {}
  /// A copy of `elements`.
  explicit Array(std::span<const T> elements, RLock lock = RLock()) : RawArray<T>(elements), lock_(std::move(lock)) {}
  /// A copy of `elements`.
  Array(std::initializer_list<T> elements, RLock lock = RLock()) : RawArray<T>(elements), lock_(std::move(lock)) {}

  RLock get_lock() const { return lock_; }  ///< the array's lock: a handle to the same one

 private:
  friend struct Codec<Array>;
  Array(RLock lock, RawArray<T> elements) : RawArray<T>(std::move(elements)), lock_(std::move(lock)) {}

  RLock lock_;
};

template <class T>
struct Codec<Array<T>> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Array", shared_type::hash<T>()); }
  static void encode(Encoder& encoder, const Array<T>& array) {
    shoal::encode(encoder, array.lock_);
    array.encode_elements(encoder);
  }
  static Array<T> decode(Decoder& decoder) {
    RLock lock = shoal::decode<RLock>(decoder);
    return Array<T>(std::move(lock), Array<T>::decode_elements(decoder));
  }
};

}  // namespace shoal
