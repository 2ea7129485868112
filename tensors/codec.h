// at::Tensor as an argument, a result or a message.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/ipc/codec.h>

namespace shoal {

/// A tensor in transit is a handle of its storage's block and a few words: type, sizes, strides, offset.
///
/// * One that is shared already moves nothing: the receiver's tensor is the same memory.
/// * Of any other CPU tensor the elements are copied once, straight into the heap; the sender's tensor
///   is not changed. A view of a large private tensor moves its own elements only.
/// * Tensors of one message that share a storage share one on the other side, if it is in the heap.
/// * requires_grad of a leaf is kept; a tensor that is not a leaf is refused: detach() it.
///
/// Strided CPU tensors of all dtypes, conjugate and negative views, and undefined ones. Others throw
/// std::invalid_argument by name. What arrives is checked: DecodeError, never a read outside its block.
template <>
struct Codec<at::Tensor> {
  static constexpr std::uint64_t schema() { return schema_hash("at::Tensor", std::uint64_t(1)); }
  static void encode(Encoder& encoder, const at::Tensor& tensor);
  static at::Tensor decode(Decoder& decoder);
};

}  // namespace shoal
