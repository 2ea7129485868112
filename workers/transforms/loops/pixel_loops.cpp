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
#include <shoal/internal/workers/transforms/loops/half_colors_avx2.inl>
#include <shoal/internal/workers/transforms/loops/interleave_avx2.inl>
// Behind what it calls.
#include <shoal/internal/workers/transforms/loops/pixel_loops.inl>
#undef SHOAL_LOOP
}  // namespace avx2
#endif

}  // namespace

const PixelLoops& PixelLoops::plain() { return shoal::plain::Loops::kLoops; }

const PixelLoops& PixelLoops::best() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return avx2::Loops::kLoops;
#endif
  return shoal::plain::Loops::kLoops;
}

}  // namespace shoal
