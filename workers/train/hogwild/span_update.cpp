#include <shoal/internal/workers/train/hogwild/span_update.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>

// The formulas are those of torch.optim, with the order of operations of libtorch's fused kernels.

namespace shoal::hogwild {
namespace {

/// What a type is computed in.
template <class T>
using Math = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
T* elements(void* place) {
  return static_cast<T*>(place);
}
template <class T>
const T* elements(const void* place) {
  return static_cast<const T*>(place);
}

struct Sgd {
  template <class T>
  static void run(const SpanUpdate& update, const Span& span) {
    using M = Math<T>;
    const Numbers& n = update.numbers();
    const M lr = M(update.factors().lr), decay = M(n.weight_decay), momentum = M(n.momentum),
            fresh = M(1 - n.dampening), sign = n.maximize ? M(-1) : M(1);
    const bool first = update.factors().first, nesterov = n.nesterov;
    T* __restrict parameter = elements<T>(span.parameter);
    const T* __restrict gradient = elements<T>(span.gradient);
    T* __restrict buffer = elements<T>(span.kept[0]);
    if (n.momentum == 0) {
      for (std::int64_t i = 0; i < span.size; ++i) {
        const M value = M(parameter[i]);
        parameter[i] = T(value - lr * (sign * M(gradient[i]) + decay * value));
      }
      return;
    }
    for (std::int64_t i = 0; i < span.size; ++i) {
      const M value = M(parameter[i]), slope = sign * M(gradient[i]) + decay * value;
      const M moved = first ? slope : momentum * M(buffer[i]) + fresh * slope;
      buffer[i] = T(moved);
      parameter[i] = T(value - lr * (nesterov ? slope + momentum * moved : moved));
    }
  }
};

template <bool kDecoupled>
struct Adaptive {
  template <class T>
  static void run(const SpanUpdate& update, const Span& span) {
    using M = Math<T>;
    const Numbers& n = update.numbers();
    const M beta1 = M(n.beta1), beta2 = M(n.beta2), rest1 = M(1 - n.beta1), rest2 = M(1 - n.beta2), eps = M(n.eps),
            step_size = M(update.factors().step_size), bias_root = M(update.factors().bias_root),
            decay = kDecoupled ? M(0) : M(n.weight_decay),
            kept = kDecoupled ? M(1 - update.factors().lr * n.weight_decay) : M(1), sign = n.maximize ? M(-1) : M(1);
    T* __restrict parameter = elements<T>(span.parameter);
    const T* __restrict gradient = elements<T>(span.gradient);
    T* __restrict first = elements<T>(span.kept[0]), * __restrict second = elements<T>(span.kept[1]), * __restrict largest = elements<T>(span.kept[2]);
    const auto loop = [&](auto amsgrad) {
      for (std::int64_t i = 0; i < span.size; ++i) {
        const M value = M(parameter[i]) * kept, slope = sign * M(gradient[i]) + decay * value;
        const M mean = beta1 * M(first[i]) + rest1 * slope;
        M square = beta2 * M(second[i]) + rest2 * slope * slope;
        first[i] = T(mean);
        second[i] = T(square);
        if constexpr (amsgrad.value) {
          square = std::max(M(largest[i]), square);
          largest[i] = T(square);
        }
        parameter[i] = T(value - step_size * mean / (std::sqrt(square) / bias_root + eps));
      }
    };
    n.amsgrad ? loop(std::true_type()) : loop(std::false_type());
  }
};

struct Adagrad {
  template <class T>
  static void run(const SpanUpdate& update, const Span& span) {
    using M = Math<T>;
    const Numbers& n = update.numbers();
    const M step_size = M(update.factors().step_size), decay = M(n.weight_decay), eps = M(n.eps),
            sign = n.maximize ? M(-1) : M(1);
    T* __restrict parameter = elements<T>(span.parameter);
    const T* __restrict gradient = elements<T>(span.gradient);
    T* __restrict sum = elements<T>(span.kept[0]);
    for (std::int64_t i = 0; i < span.size; ++i) {
      const M value = M(parameter[i]), slope = sign * M(gradient[i]) + decay * value;
      const M grown = M(sum[i]) + slope * slope;
      sum[i] = T(grown);
      parameter[i] = T(value - step_size * slope / (std::sqrt(grown) + eps));
    }
  }
};

struct RmsProp {
  template <class T>
  static void run(const SpanUpdate& update, const Span& span) {
    using M = Math<T>;
    const Numbers& n = update.numbers();
    const M lr = M(update.factors().lr), decay = M(n.weight_decay), eps = M(n.eps), alpha = M(n.alpha),
            rest = M(1 - n.alpha), momentum = M(n.momentum), sign = n.maximize ? M(-1) : M(1);
    const bool moves = n.momentum != 0;
    T* __restrict parameter = elements<T>(span.parameter);
    const T* __restrict gradient = elements<T>(span.gradient);
    T* __restrict squares = elements<T>(span.kept[0]), * __restrict buffer = elements<T>(span.kept[1]), * __restrict means = elements<T>(span.kept[2]);
    const auto loop = [&](auto centered, auto with_momentum) {
      for (std::int64_t i = 0; i < span.size; ++i) {
        const M value = M(parameter[i]), slope = sign * M(gradient[i]) + decay * value;
        M square = alpha * M(squares[i]) + rest * slope * slope;
        squares[i] = T(square);
        if constexpr (centered.value) {
          const M mean = M(means[i]) + rest * (slope - M(means[i]));
          means[i] = T(mean);
          square -= mean * mean;
        }
        M change = slope / (std::sqrt(square) + eps);
        if constexpr (with_momentum.value) {
          change += momentum * M(buffer[i]);
          buffer[i] = T(change);
        }
        parameter[i] = T(value - lr * change);
      }
    };
    using True = std::true_type;
    using False = std::false_type;
    if (n.centered)
      moves ? loop(True(), True()) : loop(True(), False());
    else
      moves ? loop(False(), True()) : loop(False(), False());
  }
};

using Loop = void (*)(const SpanUpdate&, const Span&);

template <class Formula>
Loop loop_for(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return &Formula::template run<float>;
    case c10::ScalarType::Double:
      return &Formula::template run<double>;
    case c10::ScalarType::Half:
      return &Formula::template run<c10::Half>;
    case c10::ScalarType::BFloat16:
      return &Formula::template run<c10::BFloat16>;
    default:
      throw std::invalid_argument("hogwild: elements of this type are not updated");
  }
}

Loop loop_for(Rule rule, c10::ScalarType type) {
  switch (rule) {
    case Rule::sgd:
      return loop_for<Sgd>(type);
    case Rule::adam:
      return loop_for<Adaptive<false>>(type);
    case Rule::adamw:
      return loop_for<Adaptive<true>>(type);
    case Rule::adagrad:
      return loop_for<Adagrad>(type);
    case Rule::rmsprop:
      return loop_for<RmsProp>(type);
  }
  throw std::invalid_argument("hogwild: no such optimizer");
}

}  // namespace

SpanUpdate::SpanUpdate(Rule rule, const Numbers& numbers, double lr, std::int64_t step, c10::ScalarType type)
    : numbers_(numbers),
      factors_{.lr = lr, .step_size = lr, .bias_root = 1, .first = false},
      loop_(loop_for(rule, type)) {
  if (rule == Rule::adam || rule == Rule::adamw) {
    factors_.step_size = lr / (1 - std::pow(numbers.beta1, double(step)));
    factors_.bias_root = std::sqrt(1 - std::pow(numbers.beta2, double(step)));
  } else if (rule == Rule::adagrad) {
    factors_.step_size = lr / (1 + double(step - 1) * numbers.lr_decay);
  }
  // torch makes the momentum of the first gradient, without dampening; a buffer of zeros gives the same without it.
  factors_.first = rule == Rule::sgd && step == 1 && numbers.dampening != 0;
}

}  // namespace shoal::hogwild
