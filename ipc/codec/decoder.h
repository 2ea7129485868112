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

/// A message being read. Every length is checked against what is there: a bad message throws DecodeError and is never
/// read outside its bounds. The decoder holds the message's handles until they are taken. One thread.
class Decoder {
 public:
  using Handles = boost::container::small_vector<Hold, 4>;  ///< holds that came with the message

  /// `bytes` must stay valid while the decoder lives.
  Decoder(std::span<const std::byte> bytes, Handles&& handles) : bytes_(bytes), handles_(std::move(handles)) {}

  /// The next `size` bytes, not copied: as long as the message. Throws DecodeError if there are fewer.
  std::span<const std::byte> read(std::size_t size) {
    if (size > bytes_.size()) fail_short(size);
    auto result = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return result;
  }
  /// The next value. Throws DecodeError if there are too few bytes.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  T read() {
    T value;
    std::memcpy(&value, read(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// Reads a count of elements that take at least `least` bytes each (1 or more). Throws if so many cannot be there, so
  /// nobody allocates memory for a false count.
  std::size_t read_count(std::size_t least);
  std::size_t left() const { return bytes_.size(); }  ///< bytes not read yet

  /// The hold at this index; it stays the decoder's.
  const Hold& handle(std::uint32_t index) const;
  /// Takes the hold at this index: it is the caller's, and nobody else can have it afterwards.
  Hold take_handle(std::uint32_t index);
  /// The hold at this index, shared by all values of the message that are made of it: to make one asks for no memory of
  /// the heap, so what has been taken out of a queue or a container is not lost.
  std::shared_ptr<Hold> shared_hold(std::uint32_t index);
  /// An object for each handle (a tensor's storage), which a codec makes once a message, so that several values that
  /// share the block share the object. `kind` names the codec: a handle that is used with two kinds is refused.
  std::shared_ptr<void>& object(std::uint32_t index, const void* kind = nullptr);

  /// Like object(), without a std::shared_ptr.
  Kept& kept(std::uint32_t index, const void* kind);

  /// Throws DecodeError if bytes are left.
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
