// Strided and quantized tensors: a handle of the storage's block, sizes, strides.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/StorageImpl.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/codec/header.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/tensors/codec.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

namespace shoal::tensor_codec {
namespace {

/// A copy of the elements in a block of the heap: in the tensor's own order of dimensions if it is
/// dense, else contiguous.
Hold copy_elements(const at::Tensor& tensor) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(std::size_t(tensor.numel()), tensor.element_size(), &bytes))
    refuse(fmt::format("{} elements have more bytes than can be counted", tensor.numel()));
  if (!tensor.is_non_overlapping_and_dense() && tensor.is_quantized()) return copy_elements(tensor.contiguous());
  Hold hold = allocate_shared(bytes);
  if (tensor.is_non_overlapping_and_dense()) {
    if (bytes != 0) std::memcpy(hold.data(), tensor.const_data_ptr(), bytes);
    return hold;
  }
  // The target borrows the block: its memory is freed by the hold, which outlives it here.
  c10::DataPtr borrowed(hold.data(), c10::Device(c10::kCPU));
  at::Tensor target = tensor_over(
      c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(borrowed), nullptr, false), tensor.scalar_type());
  target.unsafeGetTensorImpl()->set_sizes_contiguous(tensor.sizes());
  target.copy_(tensor);
  return hold;
}

Kept keep(c10::intrusive_ptr<c10::StorageImpl> storage) {
  return Kept(storage.release(),
              [](void* kept) { c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl*>(kept)); });
}

/// A private storage that goes as a whole, once a message: its views of the message go on sharing it.
std::uint32_t add_storage(Encoder& encoder, const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (auto added = encoder.find_added(storage)) return *added;
  Hold hold = allocate_shared(storage->nbytes());
  if (storage->nbytes() != 0) std::memcpy(hold.data(), storage->data(), storage->nbytes());
  std::uint32_t handle = encoder.add(std::move(hold));
  encoder.note_added(storage, handle,
                     keep(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl())));
  return handle;
}

/// A private tensor's storage goes as a whole if the message has it already, which costs nothing, and for a view of
/// at least half of it: so expanded tensors do not grow, and a small view of a large storage moves its own elements
/// only.
bool goes_as_a_whole(Encoder& encoder, const at::Tensor& tensor) {
  if (encoder.find_added(tensor.storage().unsafeGetStorageImpl())) return true;
  const std::size_t bytes = tensor.storage().nbytes();
  // By division: the elements of an expanded tensor may have more bytes than can be counted.
  const std::size_t of_two = 2 * tensor.element_size();
  return bytes != 0 && (bytes + of_two - 1) / of_two <= std::size_t(tensor.numel());
}

/// Elements that a tensor of these sizes and strides reaches, from its offset on. Nothing overflows.
std::int64_t reach(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    std::int64_t step;
    if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &step) || __builtin_add_overflow(last, step, &last))
      bad("its sizes and strides overflow");
  }
  return last + 1;
}

c10::Storage storage_for(Decoder& decoder, std::uint32_t handle) {
  static constexpr char kKind = 0;
  // One storage a block and message: tensors that shared one go on sharing it.
  Kept& made = decoder.kept(handle, &kKind);
  if (!made) made = keep(received_storage(decoder.take_handle(handle)));
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(static_cast<c10::StorageImpl*>(made.get())));
}

void encode_quantizer(Encoder& encoder, const at::Tensor& tensor, Kind kind) {
  if (kind == Kind::kQuantizedPerTensor) {
    encoder.write(tensor.q_scale());
    encoder.write(tensor.q_zero_point());
  } else {
    encoder.write(tensor.q_per_channel_axis());
    shoal::encode(encoder, tensor.q_per_channel_scales());
    shoal::encode(encoder, tensor.q_per_channel_zero_points());
  }
}

at::QuantizerPtr decode_quantizer(Decoder& decoder, const Header& header, c10::ScalarType dtype,
                                  at::IntArrayRef sizes) {
  if (header.kind == Kind::kQuantizedPerTensor) {
    auto scale = decoder.read<double>();
    auto zero_point = decoder.read<std::int64_t>();
    return at::make_per_tensor_affine_quantizer(scale, zero_point, dtype);
  }
  auto axis = decoder.read<std::int64_t>();
  auto scales = shoal::decode<at::Tensor>(decoder), zero_points = shoal::decode<at::Tensor>(decoder);
  if (axis < 0 || axis >= std::int64_t(sizes.size())) bad("a quantization axis that it does not have");
  for (const at::Tensor& each : {scales, zero_points})
    if (!each.defined() || each.layout() != at::kStrided || each.device().is_meta() || each.dim() != 1 ||
        each.size(0) != sizes[std::size_t(axis)])
      bad("quantization parameters that do not fit its channels");
  return at::make_per_channel_affine_quantizer(scales, zero_points, axis, dtype);
}

template <class T>
void write_all(Encoder& encoder, const std::vector<T>& all) {
  encoder.write(std::uint32_t(all.size()));
  encoder.write(all.data(), all.size() * sizeof(T));
}

template <class T>
std::vector<T> read_all(Decoder& decoder) {
  const std::size_t count = decoder.read<std::uint32_t>();
  auto bytes = decoder.read(count * sizeof(T));  // never more than there are, so the count is none to fear
  std::vector<T> all(count);
  if (count != 0) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

/// Of a tensor on a device, behind sizes and strides: the words to wait for and the handles of its export's pieces.
void write_device_handles(Encoder& encoder, const DeviceIpc::Handles& handles) {
  static_assert(std::has_unique_object_representations_v<SentWord>);
  write_all(encoder, handles.words);
  write_all(encoder, handles.offers);
}

c10::Storage read_device_storage(Decoder& decoder, std::uint32_t block) {
  DeviceIpc::Handles handles{.block = block, .words = read_all<SentWord>(decoder), .offers = {}};
  handles.offers = read_all<std::uint32_t>(decoder);
  return DeviceIpc::current().decode(decoder, handles);
}

bool is_packed(c10::ScalarType dtype) {  // several elements a byte
  return dtype == c10::ScalarType::QUInt4x2 || dtype == c10::ScalarType::QUInt2x4;
}

}  // namespace

void encode_strided(Encoder& encoder, const at::Tensor& given, Header header) {
  if (is_packed(given.scalar_type())) refuse(fmt::format("{} does not cross", c10::toString(given.scalar_type())));
  at::Tensor tensor = given;
  bool contiguous;
  auto flag_views = [&] {
    if (tensor.is_conj()) header.flags |= kConjugate;
    if (tensor.is_neg()) header.flags |= kNegative;
  };
  DeviceIpc::Handles on_device;
  if (header.kind == Kind::kDevice) {
    on_device = DeviceIpc::current().encode(encoder, given.storage());
    header.handle = on_device.block;
    header.offset = tensor.storage_offset();
    flag_views();
    contiguous = tensor.is_contiguous();
  } else if (const Hold* hold = shared_hold(given)) {
    // Born in a SharedMemoryScope it may have been resized so far. From now on others see it.
    tensor.storage().unsafeGetStorageImpl()->set_allocator(shared_storage_allocator());
    header.handle = encoder.add(*hold);
    header.offset = tensor.storage_offset();
    flag_views();
    contiguous = tensor.is_contiguous();
  } else if (goes_as_a_whole(encoder, given)) {
    header.handle = add_storage(encoder, given);
    header.offset = tensor.storage_offset();
    flag_views();
    contiguous = tensor.is_contiguous();
  } else {
    tensor = tensor.detach();
    if (!tensor.is_quantized()) tensor = tensor.resolve_conj().resolve_neg();
    header.handle = encoder.add(copy_elements(tensor));
    contiguous = tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense();
  }
  if (contiguous) header.flags |= kContiguous;
  encoder.write(header);
  write_words(encoder, tensor.sizes());
  if (!contiguous) write_words(encoder, tensor.strides());
  if (header.kind == Kind::kDevice)
    write_device_handles(encoder, on_device);
  else if (header.kind != Kind::kStrided)
    encode_quantizer(encoder, given, header.kind);
}

at::Tensor decode_strided(Decoder& decoder, const Header& header) {
  const c10::ScalarType dtype = checked_type(header);
  const bool on_device = header.kind == Kind::kDevice;
  if (is_packed(dtype) || c10::isQIntType(dtype) != (header.kind != Kind::kStrided && !on_device))
    bad(fmt::format("element type {} in a tensor of another kind", c10::toString(dtype)));
  // Not vectors: this is on the way of every tensor.
  std::array<std::int64_t, kMostDimensions> size_words, stride_words;
  const std::size_t words = header.dimensions * sizeof(std::int64_t);
  auto read_words = [&](auto& into) {
    auto bytes = decoder.read(words);
    if (words != 0) std::memcpy(into.data(), bytes.data(), words);
  };
  read_words(size_words);
  at::IntArrayRef sizes(size_words.data(), header.dimensions), strides(stride_words.data(), header.dimensions);
  std::int64_t count = 1;
  for (std::int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) bad("its sizes are negative or overflow");
  if (header.flags & kContiguous) {
    std::int64_t stride = 1;
    for (std::size_t d = header.dimensions; d-- > 0;) {
      stride_words[d] = stride;
      if (__builtin_mul_overflow(stride, std::max<std::int64_t>(sizes[d], 1), &stride)) bad("its sizes overflow");
    }
  } else {
    read_words(stride_words);
    for (std::int64_t stride : strides)
      if (stride < 0) bad("a negative stride");
  }
  at::QuantizerPtr quantizer;
  if (header.kind != Kind::kStrided && !on_device) quantizer = decode_quantizer(decoder, header, dtype, sizes);
  c10::Storage storage = on_device ? read_device_storage(decoder, header.handle) : storage_for(decoder, header.handle);
  std::int64_t elements = std::int64_t(storage.nbytes() / c10::elementSize(dtype));
  if (header.offset < 0 || header.offset > elements || reach(sizes, strides) > elements - header.offset)
    bad("it reaches outside its block");

  at::Tensor tensor = quantizer ? at::detail::make_tensor<at::QTensorImpl>(
                                      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::QuantizedCPU),
                                      c10::scalarTypeToTypeMeta(dtype), std::move(quantizer))
                                : tensor_over(std::move(storage), dtype);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (header.flags & kContiguous) {
    impl->set_storage_offset(header.offset);
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides, header.offset);
  }
  return with_flags(std::move(tensor), header);
}

at::Tensor with_flags(at::Tensor tensor, const Header& header) {
  if (header.flags & kConjugate) {
    if (!tensor.is_complex()) bad("a conjugate view of a type that is not complex");
    tensor = tensor.conj();
  }
  if (header.flags & kNegative) tensor = at::_neg_view(tensor);
  return tensor;
}

}  // namespace shoal::tensor_codec
