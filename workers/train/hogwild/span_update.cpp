#include <shoal/internal/workers/train/hogwild/span_update.h>

#include <shoal/internal/workers/train/hogwild/element_types.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

// The formulas are those of torch.optim, with the order of operations of libtorch's fused kernels. Each is compiled for vectors
// of several widths, none with fused operations, so that all give the same bits.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] inline

namespace shoal::hogwild {
namespace {

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
  SHOAL_LOOP_BODY static void run(const SpanUpdate& update, const Span& span) {
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
  SHOAL_LOOP_BODY static void run(const SpanUpdate& update, const Span& span) {
    update.numbers().amsgrad ? loop<T, true>(update, span) : loop<T, false>(update, span);
  }
  template <class T, bool kAmsgrad>
  SHOAL_LOOP_BODY static void loop(const SpanUpdate& update, const Span& span) {
    using M = Math<T>;
    const Numbers& n = update.numbers();
    const M beta1 = M(n.beta1), beta2 = M(n.beta2), rest1 = M(1 - n.beta1), rest2 = M(1 - n.beta2), eps = M(n.eps),
            step_size = M(update.factors().step_size), bias_root = M(update.factors().bias_root),
            decay = kDecoupled ? M(0) : M(n.weight_decay),
            kept = kDecoupled ? M(1 - update.factors().lr * n.weight_decay) : M(1), sign = n.maximize ? M(-1) : M(1);
    T* __restrict parameter = elements<T>(span.parameter);
    const T* __restrict gradient = elements<T>(span.gradient);
    T* __restrict first = elements<T>(span.kept[0]), * __restrict second = elements<T>(span.kept[1]), * __restrict largest = elements<T>(span.kept[2]);
    for (std::int64_t i = 0; i < span.size; ++i) {
      const M value = M(parameter[i]) * kept, slope = sign * M(gradient[i]) + decay * value;
      const M mean = beta1 * M(first[i]) + rest1 * slope;
      M square = beta2 * M(second[i]) + rest2 * slope * slope;
      first[i] = T(mean);
      second[i] = T(square);
      if constexpr (kAmsgrad) {
        square = std::max(M(largest[i]), square);
        largest[i] = T(square);
      }
      parameter[i] = T(value - step_size * mean / (std::sqrt(square) / bias_root + eps));
    }
  }
};

struct Adagrad {
  template <class T>
  SHOAL_LOOP_BODY static void run(const SpanUpdate& update, const Span& span) {
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
  SHOAL_LOOP_BODY static void run(const SpanUpdate& update, const Span& span) {
    const bool moves = update.numbers().momentum != 0;
    if (update.numbers().centered)
      moves ? loop<T, true, true>(update, span) : loop<T, true, false>(update, span);
    else
      moves ? loop<T, false, true>(update, span) : loop<T, false, false>(update, span);
  }
  template <class T, bool kCentered, bool kMoves>
  SHOAL_LOOP_BODY static void loop(const SpanUpdate& update, const Span& span) {
    using M = Math<T>;
    const Numbers& n = update.numbers();
    const M lr = M(update.factors().lr), decay = M(n.weight_decay), eps = M(n.eps), alpha = M(n.alpha),
            rest = M(1 - n.alpha), momentum = M(n.momentum), sign = n.maximize ? M(-1) : M(1);
    T* __restrict parameter = elements<T>(span.parameter);
    const T* __restrict gradient = elements<T>(span.gradient);
    T* __restrict squares = elements<T>(span.kept[0]), * __restrict buffer = elements<T>(span.kept[1]), * __restrict means = elements<T>(span.kept[2]);
    for (std::int64_t i = 0; i < span.size; ++i) {
      const M value = M(parameter[i]), slope = sign * M(gradient[i]) + decay * value;
      M square = alpha * M(squares[i]) + rest * slope * slope;
      squares[i] = T(square);
      if constexpr (kCentered) {
        const M mean = M(means[i]) + rest * (slope - M(means[i]));
        means[i] = T(mean);
        square -= mean * mean;
      }
      M change = slope / (std::sqrt(square) + eps);
      if constexpr (kMoves) {
        change += momentum * M(buffer[i]);
        buffer[i] = T(change);
      }
      parameter[i] = T(value - lr * change);
    }
  }
};

#undef SHOAL_LOOP_BODY

using Loop = void (*)(const SpanUpdate&, const Span&);

#define SHOAL_WIDTH(NAME, ATTRIBUTE)                                        \
  struct NAME {                                                             \
    template <class Formula, class T>                                       \
    ATTRIBUTE static void run(const SpanUpdate& update, const Span& span) { \
      Formula::template run<T>(update, span);                               \
    }                                                                       \
  };

SHOAL_WIDTH(Plain, )
#if defined(__x86_64__)
SHOAL_WIDTH(Avx2, [[gnu::target("avx2")]])
SHOAL_WIDTH(Avx512, [[gnu::target("avx2,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]])
#endif

#undef SHOAL_WIDTH

template <class Width, class Formula>
Loop loop_for(c10::ScalarType type) {
  return with_element_type(type, []<class T>() -> Loop { return &Width::template run<Formula, T>; });
}

template <class Width>
Loop loop_for(Rule rule, c10::ScalarType type) {
  switch (rule) {
    case Rule::sgd:
      return loop_for<Width, Sgd>(type);
    case Rule::adam:
      return loop_for<Width, Adaptive<false>>(type);
    case Rule::adamw:
      return loop_for<Width, Adaptive<true>>(type);
    case Rule::adagrad:
      return loop_for<Width, Adagrad>(type);
    case Rule::rmsprop:
      return loop_for<Width, RmsProp>(type);
  }
  throw std::invalid_argument("hogwild: no such optimizer");
}

Loop loop_for(Rule rule, c10::ScalarType type, SpanUpdate::Width width) {
#if defined(__x86_64__)
  if (width == SpanUpdate::Width::bytes_64) return loop_for<Avx512>(rule, type);
  if (width == SpanUpdate::Width::bytes_32) return loop_for<Avx2>(rule, type);
#endif
  return loop_for<Plain>(rule, type);
}

}  // namespace

SpanUpdate::Width SpanUpdate::widest() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  // Most CPUs with AVX-512 but without VBMI, Skylake and Cascade Lake, lower their clock for vectors of 64 bytes.
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
  if (avx512) return Width::bytes_64;
  if (avx2) return Width::bytes_32;
#endif
  return Width::plain;
}

SpanUpdate::SpanUpdate(Rule rule, const Numbers& numbers, double lr, std::int64_t step, c10::ScalarType type,
                       Width width)
    : numbers_(numbers),
      factors_{.lr = lr, .step_size = lr, .bias_root = 1, .first = false},
      loop_(loop_for(rule, type, std::min(width, widest()))) {
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
