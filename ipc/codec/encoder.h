// Writes values as bytes and holds.
#pragma once

#include <shoal/ipc/heap.h>

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// The deepest nesting of values: std::vector<std::string> is two deep. Each level of a value that contains its own
/// type takes some of the stack of those that encode, decode and destroy it.
inline constexpr int kDeepestNesting = 256;

/// Keeps any object until it is destroyed, like a std::shared_ptr<void>, but for objects that have a count of their
/// own: so it allocates nothing.
class Kept {
 public:
  Kept() = default;
  /// Takes over one count of `object`, which `drop` gives back.
  Kept(void* object, void (*drop)(void*)) noexcept : object_(object), drop_(drop) {}
  Kept(Kept&& other) noexcept : object_(std::exchange(other.object_, nullptr)), drop_(other.drop_) {}
  Kept& operator=(Kept&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(drop_, other.drop_);
    return *this;
  }
  ~Kept() {
    if (object_) drop_(object_);
  }
  void* get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  void* object_ = nullptr;
  void (*drop_)(void*) = nullptr;
};

/// A message being written: bytes, and holds on blocks of the heap that travel with it (handles). One thread uses it.
///
/// - Handles are in transit from the moment they are added. An Encoder that is destroyed before its message was sent
///   gives them up.
/// - A message of more than a few bytes is written straight into a block of the heap, so sending it copies nothing.
/// - If the process dies, the handles and the block are given back.
class Encoder {
 public:
  Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder();

  /// Writes bytes. Throws OutOfSharedMemory.
  void write(const void* bytes, std::size_t size) {
    if (size > capacity_ - size_) grow(size_ + size);
    if (size != 0) std::memcpy(data_ + size_, bytes, size);
    size_ += size;
  }
  /// The value's bytes. Throws OutOfSharedMemory.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void write(const T& value) {
    write(&value, sizeof value);
  }

  /// Lets a block travel with the message. Returns the handle's index for Decoder::handle(), the same one for the same
  /// block.
  std::uint32_t add(Hold&& hold);
  /// Lets a block travel by one hold more; the caller's hold stays.
  std::uint32_t add(const Hold& hold);

  /// The index of the handle as which a thing was added: a codec may meet one thing twice in a message.
  std::optional<std::uint32_t> find_added(const void* thing) {
    if (added_.size() >= kIndexFrom) return find_added_among_many(thing);
    for (const Added& added : added_)
      if (added.thing == thing) return added.handle;
    return std::nullopt;
  }
  /// Notes that `thing` was added as `handle`. `keep` owns the thing, so that no other thing gets its address while the
  /// message is written.
  void note_added(const void* thing, std::uint32_t handle, Kept keep) {
    added_.push_back({thing, handle, std::move(keep)});
  }

  std::span<const std::byte> bytes() const { return {data_, size_}; }                      ///< written so far
  std::span<const HoldRef> handles() const { return {handles_.data(), handles_.size()}; }  ///< added so far

  /// The size of the whole message: its bytes and, aligned to 8, its handles.
  std::size_t total() const { return handles_at(size_) + handles_.size() * sizeof(HoldRef); }
  /// Where the handles of a message of so many bytes lie.
  static std::size_t handles_at(std::size_t bytes) { return (bytes + 7) / 8 * 8; }
  /// Writes the whole message to `place`, of total() bytes.
  void copy_to(std::byte* place) const;
  /// The whole message in a block of the heap. The block is the encoder's until it is moved from.
  Hold& in_block();
  /// Says that the message was sent: its handles are no longer this object's.
  void sent() noexcept { handles_.clear(); }

  /// Guards one level of nesting: refuses at the sender what no Decoder would read.
  class Level {
   public:
    explicit Level(Encoder& encoder) : encoder_(encoder) {
      if (encoder_.depth_ >= kDeepestNesting) fail_deep();
      ++encoder_.depth_;
    }
    ~Level() { --encoder_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Encoder& encoder_;
  };

 private:
  [[noreturn]] static void fail_deep();

  static constexpr std::size_t kPrivateBytes = 256;
  void grow(std::size_t needed);
  /// From this many handles on an index finds them: a message may have a million tensors.
  static constexpr std::size_t kIndexFrom = 32;
  struct Index;
  std::optional<std::uint32_t> find_handle(BlockOffset block);
  std::optional<std::uint32_t> find_added_among_many(const void* thing);
  void make_room();

  std::byte* data_ = private_;  // private_, or the block's bytes
  std::size_t size_ = 0;
  std::size_t capacity_ = kPrivateBytes;
  Hold block_;
  boost::container::small_vector<HoldRef, 4> handles_;
  struct Added {
    const void* thing;
    std::uint32_t handle;
    Kept keep;
  };
  boost::container::small_vector<Added, 1> added_;
  std::unique_ptr<Index> index_;
  int depth_ = 0;
  std::byte private_[kPrivateBytes];
};

}  // namespace shoal
