// at::Tensor as an argument, a result or a message.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <shoal/ipc/codec.h>

namespace shoal {

/// A tensor in transit is a handle of its storage's block and a few words: type, sizes, strides, offset.
///
/// * One that is shared already moves nothing: the receiver's tensor is the same memory.
/// * Of any other CPU tensor the elements are copied once, straight into the heap; the sender's tensor
///   is not changed. A view of less than half of a private storage moves its own elements only, a larger
///   one the storage.
/// * Tensors of one message that share a storage share one on the other side, if it is in the heap, or
///   went along as a whole.
/// * A tensor on a GPU stays there, and its storage is shared as a whole: docs/cuda.md.
/// * requires_grad of a leaf is kept; a tensor that is not a leaf is refused: detach() it.
///
/// All dtypes; strided, quantized (per tensor, per channel), sparse COO, CSR, CSC, BSR, BSC and nested
/// tensors, of which the parts cross as strided ones; meta and undefined ones; conjugate and negative views.
/// The table is in docs/tensors.md. Others throw std::invalid_argument by name. What arrives is
/// checked, indices of sparse tensors included: DecodeError, never a read outside a block.
template <>
struct Codec<at::Tensor> {
  static constexpr std::uint64_t schema() { return schema_hash("at::Tensor", std::uint64_t(3)); }
  static void encode(Encoder& encoder, const at::Tensor& tensor);
  static at::Tensor decode(Decoder& decoder);
  /// For Queue<at::Tensor>::loan({3, 4}, at::kFloat): as empty_shared.
  static at::Tensor loan(at::IntArrayRef sizes, const c10::TensorOptions& options = {});
};

}  // namespace shoal
