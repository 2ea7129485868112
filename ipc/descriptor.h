// Descriptor: a file descriptor as a message.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/fd.h>

#include <memory>

namespace shoal {

/// An open file, socket, ... that can be sent to another process, through any queue, pipe, argument or
/// result. A handle: copies in one process are the same descriptor, which is closed with the last of them;
/// a receiver has a descriptor of its own for the same open file description (offset and flags are
/// common, as after dup).
///
/// The sender has to be alive when the message is decoded: it is asked for the descriptor then. If it is
/// not, decoding throws PeerDied. A message that is never received keeps a duplicate open in the sender
/// for as long as the message exists.
class Descriptor {
 public:
  Descriptor() = default;
  /// Takes it over.
  explicit Descriptor(Fd descriptor) : descriptor_(std::make_shared<Fd>(std::move(descriptor))) {}
  /// A duplicate (CLOEXEC) of one that stays the caller's. Throws SystemError.
  static Descriptor duplicate_of(int descriptor);

  /// -1 where there is none. Owned by this object and its copies.
  int get() const noexcept { return descriptor_ ? descriptor_->get() : -1; }
  explicit operator bool() const noexcept { return get() >= 0; }  ///< whether there is one

 private:
  std::shared_ptr<Fd> descriptor_;
};

template <>
struct Codec<Descriptor> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Descriptor"); }
  /// Throws std::invalid_argument for an empty one.
  static void encode(Encoder& encoder, const Descriptor& descriptor);
  static Descriptor decode(Decoder& decoder);
};

}  // namespace shoal
