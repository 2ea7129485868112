// Sparse and nested tensors: made of strided ones, which cross as such.
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_nested_view_from_buffer.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/codec/header.h>
#include <shoal/tensors/codec.h>

namespace shoal::tensor_codec {
namespace {

/// A part has to be something that the checks below may look into.
at::Tensor decode_part(Decoder& decoder) {
  auto part = shoal::decode<at::Tensor>(decoder);
  if (!part.defined() || !part.device().is_cpu() || part.layout() != at::kStrided || part.is_nested() ||
      part.is_quantized() || part.requires_grad())
    bad("a part of a sparse or nested tensor that is not strided");
  return part;
}

/// What libtorch checks, with its message.
template <class Body>
at::Tensor checked(Body&& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    bad(error.what_without_backtrace());
  }
}

void encode_coo(Encoder& encoder, const at::Tensor& tensor, Header header) {
  if (tensor.is_coalesced()) header.flags |= kCoalesced;
  encoder.write(header);
  write_words(encoder, tensor.sizes());
  shoal::encode(encoder, tensor._indices().detach());
  shoal::encode(encoder, tensor._values().detach());
}

at::Tensor decode_coo(Decoder& decoder, const Header& header) {
  std::vector<std::int64_t> sizes = read_sizes(decoder, header);
  at::Tensor indices = decode_part(decoder), values = decode_part(decoder);
  const bool coalesced = header.flags & kCoalesced;
  return checked([&] {
    at::_validate_sparse_coo_tensor_args(indices, values, sizes, coalesced);
    return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse), coalesced);
  });
}

bool rows_are_compressed(at::Layout layout) { return layout == at::kSparseCsr || layout == at::kSparseBsr; }

void encode_compressed(Encoder& encoder, const at::Tensor& tensor, const Header& header) {
  const bool rows = rows_are_compressed(tensor.layout());
  encoder.write(header);
  write_words(encoder, tensor.sizes());
  encoder.write(std::uint8_t(tensor.layout()));
  shoal::encode(encoder, (rows ? tensor.crow_indices() : tensor.ccol_indices()).detach());
  shoal::encode(encoder, (rows ? tensor.col_indices() : tensor.row_indices()).detach());
  shoal::encode(encoder, tensor.values().detach());
}

at::Tensor decode_compressed(Decoder& decoder, const Header& header) {
  std::vector<std::int64_t> sizes = read_sizes(decoder, header);
  auto layout = at::Layout(decoder.read<std::uint8_t>());
  if (layout != at::kSparseCsr && layout != at::kSparseCsc && layout != at::kSparseBsr && layout != at::kSparseBsc)
    bad(fmt::format("unknown layout {}", int(layout)));
  at::Tensor compressed = decode_part(decoder), plain = decode_part(decoder), values = decode_part(decoder);
  return checked([&] {
    at::_validate_sparse_compressed_tensor_args(compressed, plain, values, sizes, layout);
    return at::_sparse_compressed_tensor_unsafe(compressed, plain, values, sizes, values.options().layout(layout));
  });
}

void encode_nested(Encoder& encoder, const at::Tensor& tensor, const Header& header) {
  const auto* nested = at::native::get_nested_tensor_impl_or_null(tensor);
  if (!nested) refuse("a nested tensor of another kind than libtorch's strided one; send its parts");
  encoder.write(header);
  shoal::encode(encoder, nested->get_unsafe_storage_as_tensor().detach());
  shoal::encode(encoder, nested->get_nested_sizes());
  shoal::encode(encoder, nested->get_nested_strides());
  shoal::encode(encoder, nested->get_storage_offsets());
}

/// libtorch does not check these: each part has to lie inside the buffer.
void check_nested(const at::Tensor& buffer, const at::Tensor& sizes, const at::Tensor& strides,
                  const at::Tensor& offsets) {
  if (buffer.dim() != 1 || !buffer.is_contiguous()) bad("a nested tensor without a flat buffer");
  if (offsets.scalar_type() != at::kLong || offsets.dim() != 1 || !offsets.is_contiguous())
    bad("a nested tensor without offsets");
  const std::int64_t parts = offsets.size(0);
  for (const at::Tensor& each : {sizes, strides}) {
    // Without parts libtorch has neither.
    bool none = parts == 0 && each.numel() == 0;
    if (!none && (each.scalar_type() != at::kLong || each.dim() != 2 || each.size(0) != parts ||
                  each.size(1) != sizes.size(1) || !each.is_contiguous()))
      bad("sizes or strides of a nested tensor that do not fit its parts");
  }
  if (parts == 0) return;
  const std::int64_t dimensions = sizes.size(1);
  const auto* size = sizes.const_data_ptr<std::int64_t>();
  const auto* stride = strides.const_data_ptr<std::int64_t>();
  const auto* offset = offsets.const_data_ptr<std::int64_t>();
  for (std::int64_t part = 0; part < parts; ++part) {
    std::int64_t last = offset[part];
    bool empty = false;
    if (last < 0) bad("a part of a nested tensor that lies before its buffer");
    for (std::int64_t d = part * dimensions; d < (part + 1) * dimensions; ++d) {
      std::int64_t step;
      if (size[d] < 0 || stride[d] < 0 ||
          __builtin_mul_overflow(std::max<std::int64_t>(size[d] - 1, 0), stride[d], &step) ||
          __builtin_add_overflow(last, step, &last))
        bad("sizes or strides of a nested tensor are negative or overflow");
      empty |= size[d] == 0;
    }
    if (!empty && last >= buffer.numel()) bad("a part of a nested tensor reaches outside its buffer");
  }
}

at::Tensor decode_nested(Decoder& decoder, const Header&) {
  at::Tensor buffer = decode_part(decoder), sizes = decode_part(decoder), strides = decode_part(decoder),
             offsets = decode_part(decoder);
  // The checks are about what is used: private copies, which nobody can change afterwards.
  sizes = sizes.clone(), strides = strides.clone(), offsets = offsets.clone();
  check_nested(buffer, sizes, strides, offsets);
  return checked([&] { return at::_nested_view_from_buffer(buffer, sizes, strides, offsets); });
}

}  // namespace

void encode_composed(Encoder& encoder, const at::Tensor& tensor, Header header) {
  switch (header.kind) {
    case Kind::kCoo:
      return encode_coo(encoder, tensor, header);
    case Kind::kCompressed:
      return encode_compressed(encoder, tensor, header);
    default:
      return encode_nested(encoder, tensor, header);
  }
}

at::Tensor decode_composed(Decoder& decoder, const Header& header) {
  switch (header.kind) {
    case Kind::kCoo:
      return decode_coo(decoder, header);
    case Kind::kCompressed:
      return decode_compressed(decoder, header);
    default:
      return decode_nested(decoder, header);
  }
}

}  // namespace shoal::tensor_codec
