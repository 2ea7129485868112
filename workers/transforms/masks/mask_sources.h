// Where the pixels of a transformed mask come from.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/images/decode.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shoal {

/// Steps that move pixels (flips, crops, resizing) move whole rows and whole columns. So all steps of a transform
/// together say for each row and each column of the result which one of the mask it shows, and the mask is copied once,
/// whatever its type: every value in the result was in the mask. One thread; used again for the next mask, without
/// allocating.
class MaskSources {
 public:
  /// Begins with a mask of this size as it is.
  void start(const ImageSize& size);
  ImageSize size() const { return {std::int64_t(rows_.size()), std::int64_t(columns_.size())}; }

  /// Adds a step whose result has this size: its row y is row row_of(y) of what there was before it, its column x is
  /// column column_of(x). Below 0: outside, filled with `fill`.
  template <class RowOf, class ColumnOf>
  void then(const ImageSize& size, std::int64_t fill, RowOf row_of, ColumnOf column_of) {
    fills_.push_back(fill);
    follow(rows_, size.height, row_of);
    follow(columns_, size.width, column_of);
  }

  /// [channels, height, width] on the CPU, of the size that start() was told, into `out`, contiguous, of the type of
  /// `mask`. Throws std::invalid_argument if that type has no room for a fill, or cannot be copied.
  void copy(const at::Tensor& mask, at::Tensor& out) const { copy(mask, out.mutable_data_ptr()); }
  /// Whether masks of this type can be copied: integers, bools, floats of 16 bits and more.
  static bool can_copy(at::ScalarType type);
  /// copy() into memory for [channels, size()]. Allocates nothing if `mask` is contiguous.
  void copy(const at::Tensor& mask, void* out) const;

 private:
  // A place outside is -1 - (number of the step that filled it): of two, the lower one was filled last.
  template <class SourceOf>
  void follow(std::vector<std::int64_t>& sources, std::int64_t count, SourceOf source_of) {
    next_.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t source = source_of(i);
      next_.push_back(source < 0 ? -std::int64_t(fills_.size()) : sources[std::size_t(source)]);
    }
    std::swap(sources, next_);
  }

  std::vector<std::int64_t> rows_, columns_, next_;
  std::vector<std::int64_t> fills_;  // one for each step
};

namespace detail {

/// Which pixel of `from` pixels the nearest one is to number `at` of `to`: torch's interpolate(mode="nearest"), which
/// is torchvision's for masks.
inline std::int64_t nearest_source(std::int64_t at, std::int64_t from, std::int64_t to) {
  // floats, as there: another rounding would be another pixel
  const float scale = float(from) / float(to);
  const auto source = std::int64_t(float(at) * scale);
  return source < from ? source : from - 1;
}

/// Throws std::invalid_argument, for a transform that turns or shears.
[[noreturn]] void refuse_turned_mask(const char* transform);

}  // namespace detail
}  // namespace shoal
