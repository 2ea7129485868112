// The rows of a sparse gradient, in order, and what is to be added to each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shoal::hogwild {

/// The rows of a sparse gradient, each once, ascending. Values that come alone stay where they are, so that only the rows
/// that come several times are copied: libtorch's coalesce() copies all, and takes as long as a quarter of a small step.
/// Moved, not copied: of two only one would have the values for itself.
class SparseRows {
 public:
  SparseRows(SparseRows&&) = default;
  SparseRows& operator=(SparseRows&&) = default;
  /// `rows`: [n] of int64, each of [0, bound), in any order and as often as they like. `values`: [n, elements of a row],
  /// contiguous, of a type that is updated; nobody changes them while this lives. Values of one row are added up in their
  /// order; half types in float, and rounded once. Throws std::out_of_range with the first row that is not in [0, bound).
  SparseRows(const at::Tensor& rows, at::Tensor values, std::int64_t bound);

  std::span<const std::int64_t> numbers() const { return numbers_; }
  std::int64_t row_size() const { return given_.size(1); }  // in elements
  /// Of the row numbers()[index].
  const std::byte* values(std::size_t index) const { return places_[index]; }

  /// All values, [numbers, elements of a row], in memory that is this object's alone: whoever changes them changes what
  /// values() points to.
  at::Tensor& own_values();

 private:
  at::Tensor given_, sums_, own_;
  std::vector<std::int64_t> numbers_;
  std::vector<const std::byte*> places_;
};

}  // namespace shoal::hogwild
