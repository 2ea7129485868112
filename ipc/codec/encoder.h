// Writes values as bytes and holds.
#pragma once

#include <shoal/ipc/heap.h>

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace shoal {

/// A message being written: bytes, and holds on blocks of the heap that travel with it (handles).
/// Handles are in transit from the moment they are added; an Encoder that is destroyed before its
/// message was sent gives them up. Used by one thread. If its process dies, so do the handles.
class Encoder {
 public:
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder();

  void write(const void* bytes, std::size_t size) {
    auto at = bytes_.size();
    bytes_.resize(at + size, boost::container::default_init);
    if (size != 0) std::memcpy(bytes_.data() + at, bytes, size);
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void write(const T& value) {
    write(&value, sizeof value);
  }

  /// Lets a block travel with the message. Returns the handle's index, the same one for the same
  /// block, for the Decoder's handle().
  std::uint32_t add(Hold&& hold);
  std::uint32_t add(const Hold& hold);

  std::span<const std::byte> bytes() const { return {bytes_.data(), bytes_.size()}; }
  std::span<const HoldRef> handles() const { return {handles_.data(), handles_.size()}; }
  /// The message was sent: its handles are no longer this object's.
  void sent() noexcept { handles_.clear(); }

 private:
  boost::container::small_vector<std::byte, 256> bytes_;
  boost::container::small_vector<HoldRef, 4> handles_;
};

}  // namespace shoal
