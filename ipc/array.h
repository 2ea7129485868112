// An array in shared memory, with its lock.
#pragma once

#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/rlock.h>
#include <shoal/ipc/sync/shared_type.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

namespace shoal {

/// In shared memory, at the start of a block of its own; the elements follow. Pictured in docs/sync.md.
struct alignas(64) ArrayLayout {
  static constexpr std::uint32_t kMagic = 0x79617261;  // "aray"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t type = 0;  // shared_type::hash of the elements
  std::uint64_t size = 0;  // elements
};

static_assert(sizeof(ArrayLayout) == 64);

/// A fixed number of Ts that any threads of any processes read and change in place, as multiprocessing.Array. T is
/// trivially copyable and has no pointers into a process's own memory. A handle: a copy is the same array, also in
/// another process; const says nothing of the elements.
///
/// Elements are memory as in a std::vector: nothing is locked by itself. Who shares them with writers holds get_lock(),
/// an RLock, meanwhile. Where a process dies with it, elements may be half-changed, and the next holder is told
/// (lock()).
template <SharedType T>
class Array {
 public:
  using value_type = T;
  using iterator = T*;

  /// `size` elements, all zero or as T() makes them. std::invalid_argument where no memory could ever hold them.
  explicit Array(std::size_t size) : Array(allocate(size)) { std::uninitialized_value_construct_n(elements_, size); }
  explicit Array(std::span<const T> elements) : Array(allocate(elements.size())) {
    std::uninitialized_copy(elements.begin(), elements.end(), elements_);
  }
  Array(std::initializer_list<T> elements) : Array(std::span<const T>(elements.begin(), elements.size())) {}

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T& operator[](std::size_t index) const noexcept { return elements_[index]; }
  /// Throws std::out_of_range.
  T& at(std::size_t index) const {
    if (index >= size_) throw std::out_of_range(fmt::format("Array::at({}) of {} elements", index, size_));
    return elements_[index];
  }
  T* data() const noexcept { return elements_; }
  T* begin() const noexcept { return elements_; }
  T* end() const noexcept { return elements_ + size_; }
  std::span<T> span() const noexcept { return {elements_, size_}; }

  RLock get_lock() const { return lock_; }

 private:
  friend struct Codec<Array>;

  /// `hold` is a block with an ArrayLayout and its elements.
  explicit Array(Hold hold, RLock lock = RLock())
      : hold_(std::make_shared<Hold>(std::move(hold))),
        lock_(std::move(lock)),
        size_(reinterpret_cast<const ArrayLayout*>(hold_->data())->size),
        elements_(reinterpret_cast<T*>(hold_->data() + sizeof(ArrayLayout))) {}

  static Hold allocate(std::size_t size) {
    constexpr std::size_t kMost = (std::size_t(1) << 47) / sizeof(T);
    if (size > kMost)
      throw std::invalid_argument(
          fmt::format("Array of {} elements of {} bytes: give 0 to {}", size, sizeof(T), kMost));
    Hold hold = allocate_shared(sizeof(ArrayLayout) + size * sizeof(T));
    auto* layout = new (hold.data()) ArrayLayout{};
    layout->type = shared_type::hash<T>();
    layout->size = size;
    return hold;
  }

  std::shared_ptr<Hold> hold_;
  RLock lock_;
  std::size_t size_;
  T* elements_;
};

template <class T>
struct Codec<Array<T>> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Array", shared_type::hash<T>()); }
  static void encode(Encoder& encoder, const Array<T>& array) {
    shoal::encode(encoder, array.lock_);
    encoder.write(encoder.add(*array.hold_));
  }
  static Array<T> decode(Decoder& decoder) {
    RLock lock = shoal::decode<RLock>(decoder);
    Hold hold = decoder.handle(decoder.read<std::uint32_t>()).share();
    if (hold.size() < sizeof(ArrayLayout)) throw DecodeError("this block of shared memory is no array");
    auto& layout = *reinterpret_cast<const ArrayLayout*>(hold.data());
    if (layout.magic != ArrayLayout::kMagic || layout.version != ArrayLayout::kVersion)
      throw DecodeError("this block of shared memory is no array of this version");
    if (layout.type != shared_type::hash<T>() || layout.size != (hold.size() - sizeof(ArrayLayout)) / sizeof(T))
      throw DecodeError("this array has elements of another type");
    return Array<T>(std::move(hold), std::move(lock));
  }
};

}  // namespace shoal
