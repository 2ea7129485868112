// One step of an optimizer for elements that lie one after the other: shoal's own loops.
#pragma once

#include <c10/core/ScalarType.h>
#include <shoal/internal/workers/train/hogwild/hogwild_layout.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shoal::hogwild {

/// An optimizer keeps at most three tensors for a parameter.
inline constexpr std::size_t kMostKept = 3;

/// Elements of a parameter, of its gradient, and of what the optimizer keeps for it, all of one type, in the order in
/// which hogwild_state.h names what is kept.
struct Span {
  void* parameter;
  const void* gradient;
  std::array<void*, kMostKept> kept;
  std::int64_t size;
};

/// A rule with its numbers for one step, for rows of sparse gradients and for what libtorch has no fused kernel for. A
/// value; any thread. Other processes may be at the same elements: each is read once and written once, as a whole, so a
/// mixture of two steps is all that can come of it.
class SpanUpdate {
 public:
  /// Of the vectors that a loop is made of. All give the same bits.
  enum class Width { plain, bytes_32, bytes_64 };
  /// What this CPU has, and is quickest with.
  static Width widest();

  /// `step`: of this parameter, from 1. Half types are computed in float. `width`: at most this one.
  SpanUpdate(Rule rule, const Numbers& numbers, double lr, std::int64_t step, c10::ScalarType type,
             Width width = widest());

  void operator()(const Span& span) const { loop_(*this, span); }

  /// What the loops read.
  struct Factors {
    double lr, step_size, bias_root;
    bool first;  // the step that makes the momentum
  };
  const Numbers& numbers() const { return numbers_; }
  const Factors& factors() const { return factors_; }

 private:
  using Loop = void (*)(const SpanUpdate& update, const Span& span);
  Numbers numbers_;
  Factors factors_;
  Loop loop_;
};

}  // namespace shoal::hogwild
