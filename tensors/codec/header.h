// The header of every tensor in a message. Not for users.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/ipc/codec/decoder.h>
#include <shoal/internal/ipc/codec/encoder.h>

#include <cstdint>
#include <string>

namespace shoal::tensor_codec {

enum class Kind : std::uint8_t {
  kUndefined = 0,
  kStrided = 1,
  kQuantizedPerTensor = 2,
  kQuantizedPerChannel = 3,
  kCoo = 4,
  kCompressed = 5,  // CSR, CSC, BSR, BSC
  kNested = 6,
  kMeta = 7,
  kDevice = 8,  // strided, on a GPU: the handle is that of its export (tensors/cuda/layout.h)
};

enum Flags : std::uint8_t {
  kRequiresGrad = 1,
  kConjugate = 2,
  kNegative = 4,
  kContiguous = 8,  // no strides follow
  kCoalesced = 16,
};

/// The header. The sizes follow, the strides unless the tensor is contiguous (int64 each), and then what the kind needs
/// besides.
struct Header {
  std::uint32_t handle;  // of the storage, for kinds that have one
  std::uint8_t dtype;    // c10::ScalarType
  std::uint8_t flags;
  std::uint8_t dimensions;
  Kind kind;
  std::int64_t offset;  // in elements, from the block's start
};

static_assert(sizeof(Header) == 16);

constexpr std::int64_t kMostDimensions = 64;

[[noreturn]] void bad(const std::string& what);      ///< throws DecodeError
[[noreturn]] void refuse(const std::string& what);   ///< throws std::invalid_argument
c10::ScalarType checked_type(const Header& header);  ///< throws DecodeError if there is no such type

void write_words(Encoder& encoder, at::IntArrayRef words);
/// Sizes that are not negative and whose product does not overflow.
std::vector<std::int64_t> read_sizes(Decoder& decoder, const Header& header);

// Strided and quantized tensors: those with one storage.
void encode_strided(Encoder& encoder, const at::Tensor& given, Header header);
at::Tensor decode_strided(Decoder& decoder, const Header& header);
/// The conjugate or negative view that the flags say.
at::Tensor with_flags(at::Tensor tensor, const Header& header);

// Tensors that consist of others.
void encode_composed(Encoder& encoder, const at::Tensor& tensor, Header header);
at::Tensor decode_composed(Decoder& decoder, const Header& header);

}  // namespace shoal::tensor_codec
