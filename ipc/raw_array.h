// An array in shared memory, without a lock.
#pragma once

#include <fmt/format.h>
#include <shoal/internal/ipc/sync/shared_type.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>

namespace shoal {

/// How an array lies in shared memory: at the start of a block of its own; the elements follow. Pictured in
/// docs/sync.md.
struct alignas(64) ArrayLayout {
  static constexpr std::uint32_t kMagic = 0x79617261;  ///< "aray"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t type = 0;  ///< shared_type::hash of the elements
  std::uint64_t size = 0;  ///< elements
};

static_assert(sizeof(ArrayLayout) == 64);

/// A fixed number of Ts that any threads of any processes read and change in place, like multiprocessing.RawArray. T is
/// trivially copyable and has no pointers into one process's memory. A handle: copies refer to the same array, also in
/// other processes. A const RawArray still gives write access to its elements.
///
/// Nothing locks the elements: they are plain memory, as in a std::vector. If one thread writes an element that another
/// one reads or writes, the program keeps them apart, by a Lock or by std::atomic_ref. If a process dies while it
/// writes, elements may be half-changed.
template <SharedType T>
class RawArray {
 public:
  using value_type = T;
  using iterator = T*;

  /// `size` elements, zero or as T() makes them. Throws std::invalid_argument if no memory could ever hold them.
  explicit RawArray(std::size_t size) : RawArray(allocate(size)) {
    std::uninitialized_value_construct_n(elements_, size);
  }
  /// A copy of `elements`.
  explicit RawArray(std::span<const T> elements) : RawArray(allocate(elements.size())) {
    std::uninitialized_copy(elements.begin(), elements.end(), elements_);
  }
  /// A copy of `elements`.
  RawArray(std::initializer_list<T> elements) : RawArray(std::span<const T>(elements.begin(), elements.size())) {}

  std::size_t size() const noexcept { return size_; }  ///< elements
  bool empty() const noexcept { return size_ == 0; }   ///< whether it has no elements
  /// Not checked: `index` is below size().
  T& operator[](std::size_t index) const noexcept { return elements_[index]; }
  /// Throws std::out_of_range.
  T& at(std::size_t index) const {
    if (index >= size_) throw std::out_of_range(fmt::format("Array::at({}) of {} elements", index, size_));
    return elements_[index];
  }
  T* data() const noexcept { return elements_; }                     ///< the first element, in shared memory
  T* begin() const noexcept { return elements_; }                    ///< the first element
  T* end() const noexcept { return elements_ + size_; }              ///< behind the last element
  std::span<T> span() const noexcept { return {elements_, size_}; }  ///< all elements, as long as a handle is there

 protected:
  friend struct Codec<RawArray>;

  void encode_elements(Encoder& encoder) const { encoder.write(encoder.add(*hold_)); }
  static RawArray decode_elements(Decoder& decoder) {
    std::shared_ptr<Hold> hold = decoder.shared_hold(decoder.read<std::uint32_t>());
    if (hold->size() < sizeof(ArrayLayout)) throw DecodeError("this block of shared memory is no array");
    auto& layout = *reinterpret_cast<const ArrayLayout*>(hold->data());
    if (layout.magic != ArrayLayout::kMagic || layout.version != ArrayLayout::kVersion)
      throw DecodeError("this block of shared memory is no array of this version");
    if (layout.type != shared_type::hash<T>() || layout.size != (hold->size() - sizeof(ArrayLayout)) / sizeof(T))
      throw DecodeError("this array has elements of another type");
    return RawArray(std::move(hold));
  }

 private:
  /// `hold` holds a block with an ArrayLayout and its elements.
  explicit RawArray(std::shared_ptr<Hold> hold)
      : hold_(std::move(hold)),
        size_(reinterpret_cast<const ArrayLayout*>(hold_->data())->size),
        elements_(reinterpret_cast<T*>(hold_->data() + sizeof(ArrayLayout))) {}

  static std::shared_ptr<Hold> allocate(std::size_t size) {
    constexpr std::size_t kMost = (std::size_t(1) << 47) / sizeof(T);
    if (size > kMost)
      throw std::invalid_argument(
          fmt::format("Array of {} elements of {} bytes: give 0 to {}", size, sizeof(T), kMost));
    Hold hold = allocate_shared(sizeof(ArrayLayout) + size * sizeof(T));
    auto* layout = new (hold.data()) ArrayLayout{};
    layout->type = shared_type::hash<T>();
    layout->size = size;
    return std::make_shared<Hold>(std::move(hold));
  }

  std::shared_ptr<Hold> hold_;
  std::size_t size_;
  T* elements_;
};

template <class T>
struct Codec<RawArray<T>> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::RawArray", shared_type::hash<T>()); }
  static void encode(Encoder& encoder, const RawArray<T>& array) { array.encode_elements(encoder); }
  static RawArray<T> decode(Decoder& decoder) { return RawArray<T>::decode_elements(decoder); }
};

}  // namespace shoal
