// Values on their way into a container and out of it.
#pragma once

#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>
#include <shoal/internal/ipc/containers/layout.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>

namespace shoal {

/// What a parcel is told besides its value.
struct ParcelLabel {
  KeptHeader kept;
  std::uint64_t schema = 0;
  std::span<const std::byte> key = {};
  std::uint64_t hash = 0;
  std::uint32_t mortal = 0;  // tag
};

/// Puts a message into a block of type kParcel, which this process holds. The message's holds become the parcel's: they
/// are given up when the parcel is, by whomever. Throws OutOfSharedMemory, and the message is as it was.
Hold make_parcel(const ParcelLabel& label, Encoder& value);

/// A value that was read: its bytes, if they are few and bring no holds, or else a hold on its parcel. One thread.
class Entry {
 public:
  Entry() = default;

  /// By a caller with the lock of the shelf that has the parcel. Throws OutOfSharedMemory if there is no room for the
  /// hold.
  void take(const Heap& heap, std::uint64_t parcel) {
    const BlockOffset block{parcel};
    auto& layout = *reinterpret_cast<ParcelLayout*>(heap.memory().payload(block));
    is_there_ = true;
    schema_ = layout.schema;
    size_ = layout.value_bytes;
    if (layout.held() == 0 && size_ <= sizeof small_) [[likely]]
      std::memcpy(small_, layout.value(), size_);
    else
      parcel_ = Hold::share_of(block);
  }
  /// Likewise, with the key, and what order() says.
  void take_with_key(const Heap& heap, std::uint64_t parcel);

  /// Takes the holds of what the value refers to, too, so that decoder() asks for no memory: before a change that cannot
  /// be undone. Throws OutOfSharedMemory.
  void open();

  /// Whether the value is made of more than its bytes.
  bool brings_handles() const { return parcel_ && layout().handles != 0; }
  explicit operator bool() const { return is_there_; }  ///< whether a value was taken
  std::uint64_t schema() const { return schema_; }
  /// The message, valid while this object lives and stays where it is; after open() once. Throws OutOfSharedMemory.
  Decoder decoder() const {
    if (!parcel_) [[likely]]
      return Decoder({small_, size_}, {});
    return parcel_decoder();
  }
  /// The key's bytes; only after take_with_key().
  std::span<const std::byte> key() const {
    if (!parcel_) return {small_ + size_, key_size_};
    return {layout().key(), layout().key_bytes};
  }
  /// When the key came, compared with others; only after take_with_key().
  std::uint64_t order() const { return order_; }

 private:
  Decoder parcel_decoder() const;
  Decoder::Handles share_handles() const;
  ParcelLayout& layout() const { return *reinterpret_cast<ParcelLayout*>(parcel_.data()); }

  bool is_there_ = false;
  std::uint64_t schema_ = 0;
  std::size_t size_ = 0;
  std::uint64_t order_ = 0;
  std::uint32_t key_size_ = 0;
  Hold parcel_;
  mutable std::unique_ptr<Decoder::Handles> opened_;
  std::byte small_[128];  // the value, and the key behind it
};

/// Is shown an entry that is taken out of its container. If the value brings handles, that is before it goes, with the
/// lock held: what the function throws then leaves the entry in its place. It must not use the container.
using Taken = std::function<void(const Entry& entry)>;

}  // namespace shoal
