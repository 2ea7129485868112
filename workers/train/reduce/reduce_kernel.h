// Element-wise reduction of several arrays into one result.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <span>

namespace shoal {

/// The operation by which elements of several ranks become one; as in c10d::ReduceOp. premul_sum is the sum of what each
/// rank has multiplied by a factor of its own: whoever has the factor does that first.
enum class ReduceOp { sum, avg, product, min, max, bit_and, bit_or, bit_xor, premul_sum };

/// The operation's name as people write it: "sum". Static text.
const char* name_of(ReduceOp op);

/// Reduces arrays of one element type by one operation. A plain value; any thread may call it. It combines the sources
/// in the order given, and every element by the same arithmetic, so processes that reduce the same sources get the same
/// bits.
///
/// - Half types are accumulated in float and rounded once.
/// - Complex numbers are pairs of reals: only sum and avg.
/// - For bool, sum and max are "or", product and min are "and".
/// - min and max hand NaN on.
/// - avg is refused for integers: it would truncate. premul_sum is for real numbers.
class ReduceKernel {
 public:
  /// Throws std::invalid_argument if the operation is not defined for the type.
  ReduceKernel(c10::ScalarType type, ReduceOp op);

  std::size_t element_size() const { return element_size_; }

  /// Writes the reduction of `count` elements of all sources to every destination. A destination may
  /// be one of the sources; partial overlap is not allowed. Pointers are aligned for the element type.
  void operator()(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                  std::size_t count) const;

  /// The loops behind it: compiled for several instruction sets, chosen when the kernel is made.
  struct Loops {
    /// d0[i] = d1[i] = a[i] op b[i], divided by `divisor` unless it is 1. d1 may be d0.
    void (*pair)(const std::byte* a, const std::byte* b, std::byte* d0, std::byte* d1, std::size_t count, int divisor);
    /// Like `pair`, for any number of sources and destinations.
    void (*many)(const std::byte* const* sources, std::size_t source_count, std::byte* const* destinations,
                 std::size_t destination_count, std::size_t count, int divisor);
    bool pair_is_exact;  // false for half types: only `many` accumulates in float
  };

 private:
  const Loops* loops_;
  std::size_t element_size_;
  std::size_t elements_per_item_;  // 2 for complex
  bool average_;
};

}  // namespace shoal
