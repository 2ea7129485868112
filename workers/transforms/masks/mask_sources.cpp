#include <shoal/internal/workers/transforms/masks/mask_sources.h>

#include <ATen/Dispatch.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace shoal {
namespace {

template <class T>
T as_pixel(std::int64_t fill) {
  const T value = static_cast<T>(fill);
  if (std::int64_t(value) != fill) {
    throw std::invalid_argument(fmt::format("transform: a mask of {} has no value {} to be filled with; set mask_fill",
                                            c10::toString(c10::CppTypeToScalarType<T>::value), fill));
  }
  return value;
}

}  // namespace

void MaskSources::start(const ImageSize& size) {
  rows_.resize(std::size_t(size.height));
  columns_.resize(std::size_t(size.width));
  std::iota(rows_.begin(), rows_.end(), 0);
  std::iota(columns_.begin(), columns_.end(), 0);
  fills_.clear();
}

bool MaskSources::can_copy(at::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/true) ? !at::isBarebonesUnsignedType(type)
                                                        : at::isFloatingType(type) && !at::isFloat8Type(type);
}

void MaskSources::copy(const at::Tensor& mask, void* out) const {
  const at::Tensor in = mask.contiguous();
  const std::int64_t channels = in.size(0), height = in.size(1), width = in.size(2);
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, in.scalar_type(), "transform of a mask", [&] {
    const auto* from = in.const_data_ptr<scalar_t>();
    auto* to = static_cast<scalar_t*>(out);
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      for (const std::int64_t row : rows_) {
        for (const std::int64_t column : columns_) {
          const std::int64_t outside = std::min(row, column);
          *to++ = outside < 0 ? as_pixel<scalar_t>(fills_[std::size_t(-1 - outside)])
                              : from[(channel * height + row) * width + column];
        }
      }
    }
  });
}

void detail::refuse_turned_mask(const char* transform) {
  throw std::invalid_argument(
      fmt::format("{}: a mask is moved by whole rows and columns, which turned pictures do not have", transform));
}

}  // namespace shoal
