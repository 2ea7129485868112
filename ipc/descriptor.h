// Descriptor: a file descriptor as a message.
#pragma once

#include <shoal/ipc/codec.h>
#include <shoal/ipc/fd.h>

#include <memory>

namespace shoal {

/// A file descriptor (file, socket, ...) that can be sent to another process through any queue, pipe, argument or
/// result. A handle: copies in one process share one descriptor, which the last copy closes. The receiver gets a
/// descriptor of its own for the same open file description, so both share offset and flags, as after dup(2).
///
/// The receiver asks the sender for the descriptor when it decodes the message. If the sender is dead by then, decoding
/// throws PeerDied. While a message waits to be received, the sender keeps a duplicate open for it.
class Descriptor {
 public:
  Descriptor() = default;
  /// Takes the descriptor over.
  explicit Descriptor(Fd descriptor) : descriptor_(std::make_shared<Fd>(std::move(descriptor))) {}
  /// Duplicates `descriptor` (with CLOEXEC); the original stays the caller's. Throws SystemError.
  static Descriptor duplicate_of(int descriptor);

  /// The descriptor, owned by this object and its copies; -1 if there is none.
  int get() const noexcept { return descriptor_ ? descriptor_->get() : -1; }
  explicit operator bool() const noexcept { return get() >= 0; }  ///< whether there is one

 private:
  std::shared_ptr<Fd> descriptor_;
};

template <>
struct Codec<Descriptor> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::Descriptor"); }
  /// Throws std::invalid_argument if `descriptor` is empty.
  static void encode(Encoder& encoder, const Descriptor& descriptor);
  static Descriptor decode(Decoder& decoder);
};

}  // namespace shoal
