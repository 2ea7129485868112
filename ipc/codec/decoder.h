// Reads values from bytes that it does not trust.
#pragma once

#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

namespace shoal {

/// A message being read. Every length is checked against what is there; anything wrong is a
/// DecodeError, never a read outside. Holds the message's handles until they are taken. One thread.
class Decoder {
 public:
  using Handles = boost::container::small_vector<Hold, 4>;  ///< holds that came with the message

  /// `bytes` must stay valid while the decoder lives.
  Decoder(std::span<const std::byte> bytes, Handles&& handles) : bytes_(bytes), handles_(std::move(handles)) {}

  /// The next `size` bytes, not copied: as long as the message. Throws DecodeError where there are fewer.
  std::span<const std::byte> read(std::size_t size) {
    if (size > bytes_.size()) fail_short(size);
    auto result = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return result;
  }
  /// The next value. Throws DecodeError where there are too few bytes.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  T read() {
    T value;
    std::memcpy(&value, read(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// A count of elements of which each takes at least `least` bytes, 1 or more: never more than are there, so that
  /// nothing is allocated for a count alone.
  std::size_t read_count(std::size_t least);
  std::size_t left() const { return bytes_.size(); }  ///< bytes not read yet

  /// The hold at this index: still the decoder's.
  const Hold& handle(std::uint32_t index) const;
  /// The same, made the caller's: nothing else can have it afterwards.
  Hold take_handle(std::uint32_t index);
  /// Per handle, an object that a codec makes once a message (a tensor's storage), so that several
  /// values that share the block share the object. `kind` tells whose: a handle that is used with two of them is
  /// refused.
  std::shared_ptr<void>& object(std::uint32_t index, const void* kind = nullptr);

  /// The same without a std::shared_ptr.
  Kept& kept(std::uint32_t index, const void* kind);

  /// All bytes must have been read.
  void finish() const;

  /// Guards one level of nesting.
  class Level {
   public:
    explicit Level(Decoder& decoder) : decoder_(decoder) {
      if (decoder_.depth_ >= kDeepestNesting) fail_deep();
      ++decoder_.depth_;
    }
    ~Level() { --decoder_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Decoder& decoder_;
  };

 private:
  [[noreturn]] void fail_short(std::size_t size) const;
  [[noreturn]] static void fail_deep();

  std::span<const std::byte> bytes_;
  Handles handles_;
  struct Object {
    std::shared_ptr<void> made;
    Kept kept;
    const void* kind = nullptr;
  };
  Object& object_of(std::uint32_t index, const void* kind);
  boost::container::small_vector<Object, 4> objects_;
  int depth_ = 0;
};

}  // namespace shoal
