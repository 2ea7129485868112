// at::Tensor as an argument, a result or a message.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <shoal/ipc/codec.h>

namespace shoal {

/// A tensor crosses as a handle of its storage's block and a few words: type, sizes, strides, offset.
///
/// * If the tensor is shared already, nothing is copied: the receiver's tensor is the same memory.
/// * Otherwise a CPU tensor's elements are copied once, straight into the heap; the sender's tensor does not change. A
///   view of less than half of a private storage copies only its own elements, a larger view the whole storage.
/// * Tensors of one message that share a storage also share one at the receiver, if it is in the heap or was copied as
///   a whole.
/// * A tensor on a GPU stays there, and its storage is shared as a whole: docs/cuda.md.
/// * A leaf keeps its requires_grad. A tensor that is not a leaf is refused: detach() it.
///
/// What crosses: all dtypes; strided, quantized (per tensor, per channel), sparse (COO, CSR, CSC, BSR, BSC) and nested
/// tensors, whose parts cross as strided ones; meta and undefined tensors; conjugate and negative views.
/// docs/tensors.md has the table. Encoding any other tensor throws std::invalid_argument, which names its kind.
/// Decoding checks what arrives, indices of sparse tensors included: it throws DecodeError and never reads outside a
/// block.
template <>
struct Codec<at::Tensor> {
  static constexpr std::uint64_t schema() { return schema_hash("at::Tensor", std::uint64_t(4)); }
  static void encode(Encoder& encoder, const at::Tensor& tensor);
  static at::Tensor decode(Decoder& decoder);
  /// Makes what `Queue<at::Tensor>::loan({3, 4}, at::kFloat)` returns, by empty_shared().
  static at::Tensor loan(at::IntArrayRef sizes, const c10::TensorOptions& options = {});
};

}  // namespace shoal
