#include <shoal/internal/workers/transforms/masks/mask_sources.h>

#include <ATen/Dispatch_v2.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <type_traits>

namespace shoal {
namespace {

template <class T>
T as_pixel(std::int64_t fill) {
  const T value = static_cast<T>(fill);
  if (std::int64_t(value) != fill || (std::is_unsigned_v<T> && fill < 0)) {
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
  return at::isIntegralType(type, /*includeBool=*/true) || type == at::kHalf || type == at::kBFloat16 ||
         type == at::kFloat || type == at::kDouble;
}

void MaskSources::copy(const at::Tensor& mask, void* out) const {
  if (!can_copy(mask.scalar_type()))
    throw std::invalid_argument(
        fmt::format("transform: a mask is {}; give integers, bools or floats", c10::toString(mask.scalar_type())));
  const at::Tensor in = mask.contiguous();
  const std::int64_t channels = in.size(0), height = in.size(1), width = in.size(2);
  const auto copy_pixels = [&]<class T>(T* to) {
    const T* from = in.const_data_ptr<T>();
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      for (const std::int64_t row : rows_) {
        for (const std::int64_t column : columns_) {
          const std::int64_t outside = std::min(row, column);
          *to++ = outside < 0 ? as_pixel<T>(fills_[std::size_t(-1 - outside)])
                              : from[(channel * height + row) * width + column];
        }
      }
    }
  };
  AT_DISPATCH_V2(in.scalar_type(), "transform of a mask", AT_WRAP([&] { copy_pixels(static_cast<scalar_t*>(out)); }),
                 AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16);
}

void detail::refuse_turned_mask(const char* transform) {
  throw std::invalid_argument(
      fmt::format("{}: a mask is moved by whole rows and columns, which turned pictures do not have", transform));
}

}  // namespace shoal
