// SharedBytes: bytes in the shared heap that cross without being copied.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/heap.h>

#include <cstddef>
#include <memory>
#include <span>

namespace shoal {

/// Bytes in shared memory, aligned to 64 bytes (from 4 KiB on to pages). A handle: copies refer to the same bytes, also
/// in other processes. The bytes stay as long as any process has a handle, even if their maker has ended. Threads and
/// processes: any; the program decides who writes when.
class SharedBytes {
 public:
  SharedBytes() = default;
  /// `size` bytes, not initialized. Throws OutOfSharedMemory.
  explicit SharedBytes(std::size_t size) : SharedBytes(allocate_shared(size), size) {}

  std::byte* data() const noexcept { return bytes_.data(); }     ///< the first byte; nullptr if there is none
  std::size_t size() const noexcept { return bytes_.size(); }    ///< bytes
  std::span<std::byte> span() const noexcept { return bytes_; }  ///< all bytes, as long as a handle is there

 private:
  friend struct Codec<SharedBytes>;
  SharedBytes(Hold hold, std::size_t size) : SharedBytes(std::make_shared<Hold>(std::move(hold)), size) {}
  SharedBytes(std::shared_ptr<Hold> hold, std::size_t size) : hold_(std::move(hold)), bytes_(hold_->data(), size) {}

  std::shared_ptr<Hold> hold_;
  std::span<std::byte> bytes_;
};

template <>
struct Codec<SharedBytes> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::SharedBytes"); }
  static SharedBytes loan(std::size_t size) { return SharedBytes(size); }
  static void encode(Encoder& encoder, const SharedBytes& bytes) {
    encoder.write(std::uint64_t(bytes.size()));
    if (bytes.hold_)
      encoder.write(encoder.add(*bytes.hold_));
    else
      encoder.write(~0u);
  }
  static SharedBytes decode(Decoder& decoder) {
    auto size = decoder.read<std::uint64_t>();
    auto handle = decoder.read<std::uint32_t>();
    if (handle == ~0u && size == 0) return {};
    std::shared_ptr<Hold> hold = decoder.shared_hold(handle);
    if (size > hold->size()) throw DecodeError("bytes announced that reach past their block");
    return SharedBytes(std::move(hold), size);
  }
};

}  // namespace shoal
