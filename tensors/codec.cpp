#include <ATen/core/Tensor.h>
#include <ATen/ops/_neg_view.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/storage.h>

#include <array>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

constexpr std::int64_t kMostDimensions = 64;

/// In front of each tensor's sizes and, unless it is contiguous, strides (int64 each).
struct TensorHeader {
  enum Flags : std::uint8_t { kDefined = 1, kRequiresGrad = 2, kConjugate = 4, kNegative = 8, kContiguous = 16 };

  std::uint32_t handle;
  std::uint8_t dtype;  // c10::ScalarType
  std::uint8_t flags;
  std::uint8_t dimensions;
  std::uint8_t reserved;
  std::int64_t offset;  // in elements, from the block's start
};

static_assert(sizeof(TensorHeader) == 16);

void refuse(const at::Tensor& tensor) {
  auto fail = [](const std::string& what) { throw std::invalid_argument("a tensor to another process: " + what); };
  if (!tensor.device().is_cpu()) fail(fmt::format("it is on {}; send tensor.cpu()", tensor.device().str()));
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_nested() || !tensor.has_storage())
    fail(fmt::format("{} is not a strided tensor; send its parts", tensor.toString()));
  if (tensor.requires_grad() && !tensor.is_leaf())
    fail("it requires grad and is not a leaf, and the graph that made it stays here; send tensor.detach()");
  if (tensor.dim() > kMostDimensions)
    fail(fmt::format("{} dimensions; at most {} can be sent", tensor.dim(), kMostDimensions));
}

/// A copy of the elements in a block of the heap: in the tensor's own order of dimensions where it is
/// dense, else contiguous.
Hold copy_elements(const at::Tensor& tensor) {
  const std::size_t bytes = tensor.numel() * tensor.element_size();
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

/// c10::Error's what() goes on with a C++ stack trace; its first part is what a person wants to read.
bool describe_c10_error(const std::exception& error, std::string& text) {
  auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  if (!c10_error) return false;
  text = c10_error->what_without_backtrace();
  return true;
}

const bool describer_registered = (register_exception_describer(&describe_c10_error), true);

[[noreturn]] void bad(const std::string& what) { throw DecodeError("a tensor from another process: " + what); }

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
  // One storage a block and message: tensors that shared one go on sharing it.
  std::shared_ptr<void>& made = decoder.object(handle);
  if (!made) {
    Hold hold = decoder.take_handle(handle);
    std::size_t bytes = hold.size();
    made = std::make_shared<c10::Storage>(storage_of(std::move(hold), bytes));
  }
  return *static_cast<c10::Storage*>(made.get());
}

}  // namespace

void Codec<at::Tensor>::encode(Encoder& encoder, const at::Tensor& given) {
  TensorHeader header{};
  if (!given.defined()) return encoder.write(header);
  refuse(given);
  at::Tensor tensor = given;
  bool contiguous;
  if (const Hold* hold = shared_hold(given)) {
    header.handle = encoder.add(*hold);
    header.offset = tensor.storage_offset();
    header.flags = (tensor.is_conj() ? TensorHeader::kConjugate : 0) | (tensor.is_neg() ? TensorHeader::kNegative : 0);
    contiguous = tensor.is_contiguous();
  } else {
    tensor = tensor.detach().resolve_conj().resolve_neg();
    header.handle = encoder.add(copy_elements(tensor));
    contiguous = tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense();
  }
  header.dtype = std::uint8_t(tensor.scalar_type());
  header.dimensions = std::uint8_t(tensor.dim());
  header.flags |= TensorHeader::kDefined | (given.requires_grad() ? TensorHeader::kRequiresGrad : 0) |
                  (contiguous ? TensorHeader::kContiguous : 0);
  encoder.write(header);
  encoder.write(tensor.sizes().data(), tensor.sizes().size() * sizeof(std::int64_t));
  if (!contiguous) encoder.write(tensor.strides().data(), tensor.strides().size() * sizeof(std::int64_t));
}

at::Tensor Codec<at::Tensor>::decode(Decoder& decoder) {
  auto header = decoder.read<TensorHeader>();
  if (!(header.flags & TensorHeader::kDefined)) return {};
  auto dtype = c10::ScalarType(header.dtype);
  if (header.dtype >= std::uint8_t(c10::ScalarType::NumOptions) || dtype == c10::ScalarType::Undefined ||
      c10::isQIntType(dtype))
    bad(fmt::format("unknown element type {}", header.dtype));
  if (header.dimensions > kMostDimensions) bad(fmt::format("{} dimensions", header.dimensions));

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
  if (header.flags & TensorHeader::kContiguous) {
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
  c10::Storage storage = storage_for(decoder, header.handle);
  std::int64_t elements = std::int64_t(storage.nbytes() / c10::elementSize(dtype));
  if (header.offset < 0 || header.offset > elements || reach(sizes, strides) > elements - header.offset)
    bad("it reaches outside its block");

  at::Tensor tensor = tensor_over(std::move(storage), dtype);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (header.flags & TensorHeader::kContiguous) {
    impl->set_storage_offset(header.offset);
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides, header.offset);
  }
  if (header.flags & TensorHeader::kConjugate) {
    if (!c10::isComplexType(dtype)) bad("a conjugate view of a type that is not complex");
    tensor = tensor.conj();
  }
  if (header.flags & TensorHeader::kNegative) tensor = at::_neg_view(tensor);
  if (header.flags & TensorHeader::kRequiresGrad) {
    if (!c10::isFloatingType(dtype) && !c10::isComplexType(dtype)) bad("a gradient of an integral type");
    tensor.requires_grad_();
  }
  return tensor;
}

}  // namespace shoal
