#include <shoal/internal/workers/transforms/loops/pixel_loops.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shoal {
namespace {

namespace plain {
#define SHOAL_LOOP
#include <shoal/internal/workers/transforms/loops/half_colors_plain.inl>
#include <shoal/internal/workers/transforms/loops/interleave_plain.inl>
#include <shoal/internal/workers/transforms/loops/weighted_plain.inl>
// Behind what it calls.
#include <shoal/internal/workers/transforms/loops/pixel_loops.inl>
#undef SHOAL_LOOP
}  // namespace plain

#if defined(__x86_64__)
// Without FMA: with it, the results would differ from the plain version's, and so between machines.
namespace avx2 {
#define SHOAL_LOOP [[gnu::target("avx2")]]
#include <shoal/internal/workers/transforms/loops/weighted_avx2.inl>
// Behind what it calls.
#include <shoal/internal/workers/transforms/loops/interleave_avx2.inl>

using Wide = __m256i;
using HalfWide = __m128i;
#define SHOAL_WIDE(intrinsic) _mm256_##intrinsic
#define SHOAL_WIDE_FROM_LEFT(a, b) _mm256_alignr_epi8(b, _mm256_permute2x128_si256(a, b, 0x21), 14)
#define SHOAL_WIDE_FROM_RIGHT(a, b) _mm256_alignr_epi8(_mm256_permute2x128_si256(a, b, 0x21), a, 2)
#include <shoal/internal/workers/transforms/loops/half_colors_wide.inl>
// Behind what it calls.
#include <shoal/internal/workers/transforms/loops/pixel_loops.inl>
#undef SHOAL_WIDE_FROM_RIGHT
#undef SHOAL_WIDE_FROM_LEFT
#undef SHOAL_WIDE
#undef SHOAL_LOOP
}  // namespace avx2

// AVX-512 has FMA, so only what computes with whole numbers, and of that only what is bound by its instructions.
namespace avx512 {
#define SHOAL_LOOP [[gnu::target("avx512bw")]]
using Wide = __m512i;
using HalfWide = __m256i;
#define SHOAL_WIDE(intrinsic) _mm512_##intrinsic
#define SHOAL_WIDE_FROM_LEFT(a, b) _mm512_alignr_epi8(b, _mm512_maskz_alignr_epi64(0xFF, b, a, 6), 14)
#define SHOAL_WIDE_FROM_RIGHT(a, b) _mm512_alignr_epi8(_mm512_maskz_alignr_epi64(0xFF, b, a, 2), a, 2)
#include <shoal/internal/workers/transforms/loops/half_colors_wide.inl>
SHOAL_LOOP void full_colors(const std::uint8_t* luma, const HalfColors& colors, std::uint8_t* const* out,
                            std::size_t n) {
  full_colors_body(luma, colors, out, n);
}
#undef SHOAL_WIDE_FROM_RIGHT
#undef SHOAL_WIDE_FROM_LEFT
#undef SHOAL_WIDE
#undef SHOAL_LOOP
constexpr PixelLoops kLoops = [] {
  PixelLoops loops = avx2::Loops::kLoops;
  loops.full_colors = &full_colors;
  return loops;
}();
}  // namespace avx512
#endif

}  // namespace

std::span<const PixelLoops* const> PixelLoops::usable() {
  static constexpr const PixelLoops* kAll[] = {&shoal::plain::Loops::kLoops,
#if defined(__x86_64__)
                                               &avx2::Loops::kLoops, &avx512::kLoops
#endif
  };
  static const std::size_t count = [] {
    std::size_t usable = 1;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) ++usable;
    // Most CPUs with AVX-512 but without VBMI, Skylake and Cascade Lake, lower their clock for vectors of 64 bytes.
    if (usable == 2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi")) ++usable;
#endif
    return usable;
  }();
  return std::span(kAll).first(count);
}

const PixelLoops& PixelLoops::plain() { return *usable().front(); }

const PixelLoops& PixelLoops::best() {
  static const PixelLoops& best = *usable().back();
  return best;
}

}  // namespace shoal
