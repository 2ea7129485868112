#include <shoal/tensors/codec.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/codec/header.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/tensors/share.h>

#include <stdexcept>
#include <vector>

namespace shoal {
namespace tensor_codec {

void bad(const std::string& what) { throw DecodeError("a tensor from another process: " + what); }
void refuse(const std::string& what) { throw std::invalid_argument("a tensor to another process: " + what); }

c10::ScalarType checked_type(const Header& header) {
  auto dtype = c10::ScalarType(header.dtype);
  if (header.dtype >= std::uint8_t(c10::ScalarType::NumOptions) || dtype == c10::ScalarType::Undefined)
    bad(fmt::format("unknown element type {}", header.dtype));
  return dtype;
}

void write_words(Encoder& encoder, at::IntArrayRef words) {
  encoder.write(words.data(), words.size() * sizeof(std::int64_t));
}

namespace {

std::vector<std::int64_t> read_words(Decoder& decoder, const Header& header) {
  std::vector<std::int64_t> words(header.dimensions);
  auto bytes = decoder.read(words.size() * sizeof(std::int64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace

std::vector<std::int64_t> read_sizes(Decoder& decoder, const Header& header) {
  std::vector<std::int64_t> sizes = read_words(decoder, header);
  std::int64_t count = 1;
  for (std::int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count))
      bad("its sizes are negative or overflow");
  return sizes;
}

namespace {

/// c10::Error's what() goes on with a C++ stack trace; its first part is what a person wants to read.
bool describe_c10_error(const std::exception& error, std::string& text) {
  auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  if (!c10_error) return false;
  text = c10_error->what_without_backtrace();
  return true;
}

const bool describer_registered = (register_exception_describer(&describe_c10_error), true);

[[noreturn]] void refuse_device(c10::Device device) {
  std::string why;
  try {
    (void)device_memory(device.type());
  } catch (const DeviceError& error) {
    why = error.what();
  }
  refuse(fmt::format("it is on {}, whose memory cannot be shared here: {}; send tensor.cpu()", device.str(), why));
}

Kind kind_of(const at::Tensor& tensor) {
#if __has_include(<ATen/core/NamedTensor.h>)  // libtorch had them up to 2.12
  if (tensor.has_names()) refuse("its dimensions have names; send tensor.rename(std::nullopt)");
#endif
  if (tensor.device().is_meta()) {
    if (tensor.is_nested() || tensor.layout() != at::kStrided)
      refuse(fmt::format("{} of no memory has a layout that does not cross; send its sizes", tensor.toString()));
    return Kind::kMeta;
  }
  if (tensor._is_zerotensor()) refuse("it is a ZeroTensor, which has no memory; send torch::zeros_like(tensor)");
  const bool on_cpu = tensor.device().is_cpu();
  if (!on_cpu && !find_device_memory(tensor.device().type())) refuse_device(tensor.device());
  if (tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python))
    refuse("it is a subclass of Tensor made in Python; send its parts");
  // The receiver checks the parts of such a tensor, and looks into them.
  if (!on_cpu && (tensor.is_nested() || tensor.layout() != at::kStrided))
    refuse(fmt::format("it is sparse or nested, on {}; send tensor.cpu(), or its parts", tensor.device().str()));
  if (tensor.is_nested()) return Kind::kNested;
  switch (tensor.layout()) {
    case at::kStrided:
      break;
    case at::kSparse:
      return Kind::kCoo;
    case at::kSparseCsr:
    case at::kSparseCsc:
    case at::kSparseBsr:
    case at::kSparseBsc:
      return Kind::kCompressed;
    default:
      refuse(fmt::format("{} has a layout that does not cross; send its parts", tensor.toString()));
  }
  if (!tensor.has_storage()) refuse(fmt::format("{} has no storage", tensor.toString()));
  if (!tensor.is_quantized()) return on_cpu ? Kind::kStrided : Kind::kDevice;
  if (!on_cpu) refuse(fmt::format("it is quantized, on {}; send tensor.cpu()", tensor.device().str()));
  switch (tensor.qscheme()) {
    case c10::kPerTensorAffine:
      return Kind::kQuantizedPerTensor;
    case c10::kPerChannelAffine:
    case c10::kPerChannelAffineFloatQParams:
      return Kind::kQuantizedPerChannel;
    default:
      refuse("its quantization scheme does not cross; send tensor.dequantize()");
  }
}

void encode_meta(Encoder& encoder, const at::Tensor& tensor, Header header) {
  if (tensor.is_conj()) header.flags |= kConjugate;
  if (tensor.is_neg()) header.flags |= kNegative;
  encoder.write(header);
  write_words(encoder, tensor.sizes());
  write_words(encoder, tensor.strides());
}

at::Tensor decode_meta(Decoder& decoder, const Header& header) {
  c10::ScalarType dtype = checked_type(header);
  std::vector<std::int64_t> sizes = read_sizes(decoder, header), strides = read_words(decoder, header);
  if (std::ranges::any_of(strides, [](std::int64_t stride) { return stride < 0; })) bad("a stride is negative");
  at::Tensor tensor = at::empty_strided(sizes, strides, at::TensorOptions(dtype).device(at::kMeta));
  return with_flags(std::move(tensor), header);
}

}  // namespace
}  // namespace tensor_codec

using namespace tensor_codec;

void Codec<at::Tensor>::encode(Encoder& encoder, const at::Tensor& tensor) {
  Header header{};
  if (!tensor.defined()) return encoder.write(header);
  header.kind = kind_of(tensor);
  if (tensor.requires_grad() && !tensor.is_leaf())
    refuse("it requires grad and is not a leaf, and the graph that made it stays here; send tensor.detach()");
  if (tensor.dim() > kMostDimensions)
    refuse(fmt::format("{} dimensions; at most {} can be sent", tensor.dim(), kMostDimensions));
  header.dtype = std::uint8_t(tensor.scalar_type());
  header.dimensions = std::uint8_t(tensor.dim());
  if (tensor.requires_grad()) header.flags |= kRequiresGrad;
  switch (header.kind) {
    case Kind::kStrided:
    case Kind::kDevice:
    case Kind::kQuantizedPerTensor:
    case Kind::kQuantizedPerChannel:
      encode_strided(encoder, tensor, header);
      break;
    case Kind::kMeta:
      encode_meta(encoder, tensor, header);
      break;
    default:
      encode_composed(encoder, tensor, header);
  }
}

at::Tensor Codec<at::Tensor>::decode(Decoder& decoder) {
  auto header = decoder.read<Header>();
  if (header.dimensions > kMostDimensions) bad(fmt::format("{} dimensions", header.dimensions));
  at::Tensor tensor;
  switch (header.kind) {
    case Kind::kUndefined:
      return tensor;
    case Kind::kStrided:
    case Kind::kDevice:
    case Kind::kQuantizedPerTensor:
    case Kind::kQuantizedPerChannel:
      tensor = decode_strided(decoder, header);
      break;
    case Kind::kMeta:
      tensor = decode_meta(decoder, header);
      break;
    case Kind::kCoo:
    case Kind::kCompressed:
    case Kind::kNested:
      tensor = decode_composed(decoder, header);
      break;
    default:
      bad(fmt::format("unknown kind {}", int(header.kind)));
  }
  if (header.flags & kRequiresGrad) {
    if (!at::isFloatingType(tensor.scalar_type()) && !at::isComplexType(tensor.scalar_type()))
      bad("a gradient of an integral type");
    tensor.requires_grad_();
  }
  return tensor;
}

at::Tensor Codec<at::Tensor>::loan(at::IntArrayRef sizes, const c10::TensorOptions& options) {
  return empty_shared(sizes, options);
}

}  // namespace shoal
