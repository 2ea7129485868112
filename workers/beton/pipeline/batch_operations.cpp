#include <shoal/internal/workers/beton/pipeline/batch_operations.h>

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/runtime/configure/names.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <stdexcept>

namespace shoal {

std::string_view name_of(const BetonOperation& operation) {
  return std::visit([]<class T>(const T&) { return config::type_name_of<T>(); }, operation);
}

void Codec<ToDevice>::encode(Encoder& encoder, const ToDevice& operation) {
  const auto text = OptionFormat<DeviceChoice>::to_text(operation.device);
  if (!text) throw std::invalid_argument("ToDevice: a function that chooses a device stays in its process");
  shoal::encode(encoder, *text);
}
ToDevice Codec<ToDevice>::decode(Decoder& decoder) {
  return {OptionFormat<DeviceChoice>::from_text(shoal::decode<std::string>(decoder))};
}
void Codec<ModuleWrapper>::encode(Encoder& /*encoder*/, const ModuleWrapper& /*operation*/) {
  throw std::invalid_argument("ModuleWrapper: a function stays in its process");
}
ModuleWrapper Codec<ModuleWrapper>::decode(Decoder& /*decoder*/) {
  throw DecodeError("a ModuleWrapper, which nobody sends");
}

namespace detail {
namespace {

template <class T, class... Types>
concept OneOf = (std::same_as<T, Types> || ...);

at::Tensor squeezed(const at::Tensor& tensor, const Squeeze& squeeze) {
  at::Tensor result = tensor;
  if (squeeze.dims.empty()) {
    for (std::int64_t dim = tensor.dim() - 1; dim > 0; --dim) result = result.squeeze(dim);
    return result;
  }
  for (const std::int64_t dim : squeeze.dims)
    if (dim == 0 || dim >= tensor.dim() || dim <= -tensor.dim())
      throw std::invalid_argument(
          fmt::format("Squeeze: dimension {} of {}; the first one is the batch", dim, tensor.dim()));
  return tensor.squeeze(squeeze.dims);
}

at::Tensor normalized(const BatchValue& value, const NormalizeImage& normalize) {
  const auto per_channel = [&](const std::vector<double>& numbers) {
    const at::Tensor one = at::tensor(numbers, at::TensorOptions(at::kFloat)).to(value.tensor.device());
    const auto channels = std::int64_t(numbers.size());
    return value.channels_first ? one.view({channels, 1, 1}) : one.view({channels});
  };
  const at::Tensor scale = per_channel(normalize.std).reciprocal();
  return value.tensor.to(at::kFloat).sub(per_channel(normalize.mean)).mul_(scale).to(type_of(normalize.dtype));
}

}  // namespace

at::ScalarType type_of(BetonNumber number) {
  constexpr std::array kTypes = {at::kByte, at::kChar,     at::kShort, at::kInt,    at::kLong,
                                 at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kBool};
  return kTypes.at(std::size_t(number));
}

bool works_on_batches(const BetonOperation& operation) {
  return std::visit(
      []<class T>(const T&) {
        return OneOf<T, ToTensor, ToTorchImage, Convert, View, Squeeze, NormalizeImage, ToDevice, ModuleWrapper>;
      },
      operation);
}

void apply_to_batch(const BetonOperation& operation, BatchValue& value) {
  std::visit(
      [&]<class T>(const T& its) {
        at::Tensor& tensor = value.tensor;
        if constexpr (std::same_as<T, ToTorchImage>) {
          if (value.channels_first || tensor.dim() != 4)
            refuse_operation(its, "it takes pictures, [n, height, width, 3], once");
          tensor = tensor.permute({0, 3, 1, 2});
          if (!its.channels_last) tensor = tensor.contiguous();
          value.channels_first = true;
        } else if constexpr (std::same_as<T, Convert>) {
          tensor = tensor.to(type_of(its.dtype));
        } else if constexpr (std::same_as<T, View>) {
          tensor = tensor.view(type_of(its.dtype));
        } else if constexpr (std::same_as<T, Squeeze>) {
          tensor = squeezed(tensor, its);
        } else if constexpr (std::same_as<T, NormalizeImage>) {
          tensor = normalized(value, its);
        } else if constexpr (std::same_as<T, ModuleWrapper>) {
          if (!its.module) refuse_operation(its, "it has no function");
          tensor = its.module(tensor);
        } else if constexpr (std::same_as<T, ToDevice>) {
          refuse_operation(its, "the loop decides where its batches go");
        } else if constexpr (!std::same_as<T, ToTensor>) {
          refuse_operation(its, "it works on single samples, and so comes before ToDevice and ModuleWrapper");
        }
      },
      operation);
}

void check_normalize(const NormalizeImage& normalize) {
  const auto fits = [](const std::vector<double>& numbers) { return numbers.size() == 1 || numbers.size() == 3; };
  const at::ScalarType type = type_of(normalize.dtype);
  if (!fits(normalize.mean) || !fits(normalize.std) || std::ranges::count(normalize.std, 0.0) > 0)
    refuse_operation(normalize, "it takes one mean and one std, or three of each, and no std is 0");
  if (type != at::kFloat && type != at::kHalf && type != at::kBFloat16)
    refuse_operation(normalize, "its dtype is float32, float16 or bfloat16");
}

void outline_operations(std::span<const BetonOperation> operations, BatchOutline& outline) {
  for (const BetonOperation& operation : operations) {
    if (const auto* to = std::get_if<ToDevice>(&operation)) {
      to->device.check();
      continue;
    }
    if (const auto* module = std::get_if<ModuleWrapper>(&operation)) {
      if (!module->module) refuse_operation(operation, "it has no function");
      return;
    }
    if (const auto* normalize = std::get_if<NormalizeImage>(&operation)) check_normalize(*normalize);
    if (std::holds_alternative<View>(operation) && !outline.has_sizes) return;
    try {
      apply_to_batch(operation, outline.value);
    } catch (const c10::Error& error) {
      refuse_operation(operation,
                       fmt::format("it cannot be applied to a batch of {} {}: {}", outline.value.tensor.sizes(),
                                   c10::toString(outline.value.tensor.scalar_type()), error.what_without_backtrace()));
    }
  }
}

std::size_t loop_begins(const BetonPipeline& pipeline) {
  std::size_t at = 0;
  while (at < pipeline.size() && !std::holds_alternative<ToDevice>(pipeline[at]) &&
         !std::holds_alternative<ModuleWrapper>(pipeline[at]))
    ++at;
  return at;
}

bool is_torch_image(const BetonPipeline& pipeline, std::size_t before) {
  for (std::size_t at = 0; at < before; ++at)
    if (std::holds_alternative<ToTorchImage>(pipeline[at])) return true;
  return false;
}

}  // namespace detail
}  // namespace shoal
