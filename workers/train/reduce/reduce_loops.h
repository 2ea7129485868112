// The loops of ReduceKernel, as templates over element, operation and instruction set.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <shoal/internal/workers/train/reduce/reduce_kernel.h>

#include <cstddef>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// A body is inlined into wrappers that differ in nothing but their target attribute; so it has to be
// inlined whatever the optimization level.
#define SHOAL_LOOP_BODY [[gnu::always_inline]] static inline

namespace shoal::reduce_loops {

struct Sum {
  template <class T>
  SHOAL_LOOP_BODY T apply(T a, T b) {
    return T(a + b);
  }
};
struct Product {
  template <class T>
  SHOAL_LOOP_BODY T apply(T a, T b) {
    return T(a * b);
  }
};
struct Min {
  // The second clause hands on a NaN in `a`, the comparison one in `b`.
  template <class T>
  SHOAL_LOOP_BODY T apply(T a, T b) {
    // NOLINTNEXTLINE(misc-redundant-expression): a NaN is not equal to itself.
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <class T>
  SHOAL_LOOP_BODY T apply(T a, T b) {
    // NOLINTNEXTLINE(misc-redundant-expression): a NaN is not equal to itself.
    return a > b || a != a ? a : b;
  }
};
struct And {
  template <class T>
  SHOAL_LOOP_BODY T apply(T a, T b) {
    return T(a & b);
  }
};
struct Or {
  template <class T>
  SHOAL_LOOP_BODY T apply(T a, T b) {
    return T(a | b);
  }
};
struct Xor {
  template <class T>
  SHOAL_LOOP_BODY T apply(T a, T b) {
    return T(a ^ b);
  }
};

/// What an element of type T is accumulated in. Overflow of signed integers wraps, as in ATen: so they
/// are added as unsigned ones.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<c10::Half> {
  using type = float;
};
template <>
struct Accumulator<c10::BFloat16> {
  using type = float;
};

/// How many elements are accumulated at once, in registers or next to them.
constexpr std::size_t kTile = 256;

/// Whether eight halfs are converted by one instruction; gcc does it one by one if left alone.
enum class HalfBy { element, f16c };

template <class T, HalfBy>
struct Tile {
  using A = typename Accumulator<T>::type;
  SHOAL_LOOP_BODY void load(const T* source, A* values) {
    for (std::size_t i = 0; i < kTile; ++i) values[i] = A(source[i]);
  }
  SHOAL_LOOP_BODY void store(const A* values, T* destination) {
    for (std::size_t i = 0; i < kTile; ++i) destination[i] = T(values[i]);
  }
};

#if defined(__x86_64__)
template <>
struct Tile<c10::Half, HalfBy::f16c> {
  [[gnu::target("avx2,f16c")]] static void load(const c10::Half* source, float* values) {
    for (std::size_t i = 0; i < kTile; i += 8)
      _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
  }
  [[gnu::target("avx2,f16c")]] static void store(const float* values, c10::Half* destination) {
    for (std::size_t i = 0; i < kTile; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
  }
};
#endif

template <class T, class Op, HalfBy kHalf>
struct Bodies {
  using A = typename Accumulator<T>::type;
  using Convert = Tile<T, kHalf>;
  static constexpr bool kDivides = std::is_floating_point_v<A> && std::is_same_v<Op, Sum>;

  /// Whether a product with the inverse is the quotient to the bit, and takes a fourth of the time.
  SHOAL_LOOP_BODY bool is_exact_inverse(int divisor) { return (divisor & (divisor - 1)) == 0; }

  // ivdep: sources and destinations are the same elements or do not meet at all.
  SHOAL_LOOP_BODY void pair(const std::byte* a, const std::byte* b, std::byte* d0, std::byte* d1, std::size_t count,
                            int divisor) {
    auto* x = reinterpret_cast<const T*>(a);
    auto* y = reinterpret_cast<const T*>(b);
    auto* u = reinterpret_cast<T*>(d0);
    auto* v = reinterpret_cast<T*>(d1);
    if (kDivides && divisor != 1) {
      if (is_exact_inverse(divisor)) {
        const T factor = T(1) / T(divisor);
#pragma GCC ivdep
        for (std::size_t i = 0; i < count; ++i) u[i] = v[i] = T(Op::apply(x[i], y[i]) * factor);
      } else {
#pragma GCC ivdep
        for (std::size_t i = 0; i < count; ++i) u[i] = v[i] = T(Op::apply(x[i], y[i]) / T(divisor));
      }
    } else if (u == v) {
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) u[i] = Op::apply(x[i], y[i]);
    } else {
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) u[i] = v[i] = Op::apply(x[i], y[i]);
    }
  }

  SHOAL_LOOP_BODY void many(const std::byte* const* sources, std::size_t source_count, std::byte* const* destinations,
                            std::size_t destination_count, std::size_t count, int divisor) {
    alignas(64) A total[kTile];
    alignas(64) A next[kTile];
    std::size_t i = 0;
    for (; i + kTile <= count; i += kTile) {
      Convert::load(reinterpret_cast<const T*>(sources[0]) + i, total);
      for (std::size_t k = 1; k < source_count; ++k) {
        auto* source = reinterpret_cast<const T*>(sources[k]) + i;
        if constexpr (std::is_same_v<T, A>) {
          for (std::size_t j = 0; j < kTile; ++j) total[j] = Op::apply(total[j], source[j]);
        } else {
          Convert::load(source, next);
          for (std::size_t j = 0; j < kTile; ++j) total[j] = Op::apply(total[j], next[j]);
        }
      }
      if (kDivides && divisor != 1) {
        if (is_exact_inverse(divisor)) {
          const A factor = A(1) / A(divisor);
          for (A& sum : total) sum = A(sum * factor);
        } else {
          for (A& sum : total) sum = A(sum / A(divisor));
        }
      }
      for (std::size_t k = 0; k < destination_count; ++k)
        Convert::store(total, reinterpret_cast<T*>(destinations[k]) + i);
    }
    for (; i < count; ++i) {
      A value = A(reinterpret_cast<const T*>(sources[0])[i]);
      for (std::size_t k = 1; k < source_count; ++k)
        value = Op::apply(value, A(reinterpret_cast<const T*>(sources[k])[i]));
      if (kDivides && divisor != 1) value = A(value / A(divisor));
      for (std::size_t k = 0; k < destination_count; ++k) reinterpret_cast<T*>(destinations[k])[i] = T(value);
    }
  }
};

#define SHOAL_KERNELS(NAME, ATTRIBUTE, HALF)                                                                     \
  template <class T, class Op>                                                                                   \
  struct NAME {                                                                                                  \
    using B = Bodies<T, Op, HALF>;                                                                               \
    ATTRIBUTE static void pair(const std::byte* a, const std::byte* b, std::byte* d0, std::byte* d1,             \
                               std::size_t count, int divisor) {                                                 \
      B::pair(a, b, d0, d1, count, divisor);                                                                     \
    }                                                                                                            \
    ATTRIBUTE static void many(const std::byte* const* sources, std::size_t source_count,                        \
                               std::byte* const* destinations, std::size_t destination_count, std::size_t count, \
                               int divisor) {                                                                    \
      B::many(sources, source_count, destinations, destination_count, count, divisor);                           \
    }                                                                                                            \
    static constexpr ReduceKernel::Loops loops{&pair, &many, std::is_same_v<T, typename B::A>};                  \
  };

SHOAL_KERNELS(Plain, , HalfBy::element)
#if defined(__x86_64__)
SHOAL_KERNELS(Avx2, [[gnu::target("avx2,f16c")]], HalfBy::f16c)
SHOAL_KERNELS(Avx512, [[gnu::target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]],
              HalfBy::f16c)
#endif

#undef SHOAL_KERNELS
#undef SHOAL_LOOP_BODY

/// The best loops that this CPU runs.
template <class T, class Op>
const ReduceKernel::Loops* best() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) return &Avx512<T, Op>::loops;
  if (avx2) return &Avx2<T, Op>::loops;
#endif
  return &Plain<T, Op>::loops;
}

}  // namespace shoal::reduce_loops
