// Fuzz target: the headers of tensors in a message are hostile: sizes, strides, types, offsets, quantizers, indices,
// handles. Either a DecodeError, or a tensor that lies inside its block. The first byte chooses a message that was
// encoded from a real value, whose bytes the rest of the input changes, or none: then the input is the message. The
// second says which blocks travel with it.
#include <ATen/ATen.h>
#include <ATen/NestedTensorImpl.h>
#include <c10/util/Logging.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/ivalue.h>
#include <shoal/tensors/module_state.h>
#include <shoal/tensors/share.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace shoal;

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// What every tensor has to be that was decoded from whatever bytes: all that can be read of it lies in its block.
void check(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_meta()) return;
  if (tensor.layout() != at::kStrided) {
    for (const auto& [name, part] : storage_parts(tensor, "fuzz")) check(part);
    (void)tensor.to_dense().sum();
    return;
  }
  if (tensor.is_nested()) {
    check(at::native::get_nested_tensor_impl(tensor)->get_unsafe_storage_as_tensor());
    for (const at::Tensor& part : tensor.unbind()) check(part);
    return;
  }
  const Hold* hold = shared_hold(tensor);
  if (!hold) fail("a decoded tensor outside the heap");
  const std::size_t bytes = tensor.storage().nbytes();
  if (bytes > hold->size()) fail("a storage larger than its block");
  std::int64_t last = tensor.storage_offset();
  if (last < 0) fail("an offset before the block");
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) < 0 || tensor.stride(d) < 0) fail("a negative size or stride");
    if (tensor.size(d) > 0) last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  if (tensor.numel() == 0) return;
  if (__uint128_t(last + 1) * tensor.element_size() > bytes) fail("a tensor that reaches outside its block");
  if (tensor.numel() < 100'000 && !tensor.is_quantized() && tensor.scalar_type() != at::kBool) (void)tensor.clone();
  if (tensor.is_quantized() && tensor.numel() < 100'000) (void)tensor.dequantize();
}
void check(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) check(tensor);
}
void check(const c10::IValue& value) {
  if (value.isTensor()) check(value.toTensor());
  if (value.isTensorList()) check(value.toTensorVector());
}
void check(const ModuleState& state) { check(state.tensors); }

template <class T>
void decode_as(std::span<const std::byte> input, Decoder::Handles&& handles) {
  Decoder decoder(input, std::move(handles));
  T value = decode<T>(decoder);
  decoder.finish();
  check(value);
}
using Target = void (*)(std::span<const std::byte>, Decoder::Handles&&);

/// A message that means something, and the blocks that it speaks of.
struct Seed {
  Target target;
  std::vector<std::byte> bytes;
  std::vector<Hold> blocks;
};

template <class T>
Seed seed(const T& value) {
  Encoder encoder;
  encode(encoder, value);
  Seed made{decode_as<T>, {encoder.bytes().begin(), encoder.bytes().end()}, {}};
  for (const HoldRef& ref : encoder.handles()) made.blocks.push_back(Hold::from_transit(ref));
  encoder.sent();
  return made;
}

const std::vector<Seed>& seeds() {
  static const std::vector<Seed> made = [] {
    at::Tensor matrix = at::rand({4, 6}), whole = at::rand({100});
    std::vector<Seed> all;
    all.push_back(seed(matrix));
    all.push_back(seed(matrix.t()));
    all.push_back(seed(at::rand({1, 4}).expand({5, 4})));
    all.push_back(seed(at::rand({3}, at::kComplexFloat).conj()));
    all.push_back(seed(at::rand({2}).requires_grad_()));
    all.push_back(seed(at::quantize_per_tensor(matrix, 0.1, 3, at::kQUInt8)));
    all.push_back(
        seed(at::quantize_per_channel(matrix, at::rand({6}, at::kDouble) + 0.1, at::arange(6), 1, at::kQInt8)));
    all.push_back(seed(at::eye(4).to_sparse()));
    all.push_back(seed(at::eye(4).to_sparse_csr()));
    all.push_back(seed(at::eye(4).to_sparse_csc()));
    all.push_back(seed(at::eye(4).to_sparse_bsr({2, 2})));
    all.push_back(seed(at::_nested_tensor_from_tensor_list({at::rand({2, 3}), at::rand({4, 1})})));
    all.push_back(seed(at::empty({2, 3}, at::TensorOptions(at::kFloat).device(at::kMeta))));
    all.push_back(seed(std::vector<at::Tensor>{whole, whole.slice(0, 0, 60), matrix}));
    all.push_back(seed(c10::IValue(c10::List<at::Tensor>({matrix, whole}))));
    all.push_back(seed(ModuleState{{matrix, whole}, {{"a", false, true, 0}, {"b", true, false, 1}}}));
    return all;
  }();
  return made;
}

/// Blocks of other sizes and kinds than the message says; one that is none of a tensor's.
Decoder::Handles make_handles(const std::vector<Hold>& blocks, std::uint8_t which) {
  static const Hold empty = allocate_shared(0), small = allocate_shared(64);
  static const Hold read_only = ReadOnlyView::allocate(100, "fuzzed");
  static Queue<int> queue(2);
  Decoder::Handles handles;
  if (which & 8) {
    Encoder encoder;
    encode(encoder, queue);
    for (const HoldRef& ref : encoder.handles()) handles.push_back(Hold::from_transit(ref));
    encoder.sent();
  }
  if (which & 1) handles.push_back(small.share());
  if (which & 2) handles.push_back(read_only.share());
  if (which & 4) handles.push_back(empty.share());
  for (const Hold& block : blocks) handles.push_back(block.share());
  return handles;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  // A seed's message, and changes of it: position, value; as it came, where the byte says none.
  const std::size_t choice = data[0] % (2 * seeds().size());
  const Seed& chosen = seeds()[choice % seeds().size()];
  std::vector<std::byte> message = chosen.bytes;
  if (choice < seeds().size()) {
    for (std::size_t i = 0; i + 1 < input.size(); i += 2)
      message[std::size_t(input[i]) % message.size()] = input[i + 1];
  } else {
    message.assign(input.begin(), input.end());
  }
  try {
    chosen.target(message, make_handles(chosen.blocks, data[1]));
  } catch (const DecodeError&) {
  } catch (const c10::NotImplementedError&) {  // of a type that ATen cannot copy or add: it was decoded
  }
  return 0;
}
