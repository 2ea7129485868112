#include <shoal/internal/workers/checkpoint/write/stream_copy.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shoal::detail {
namespace {

#if defined(__x86_64__)
constexpr std::size_t kLine = 64;

/// Whole lines, of which the first begins at `to`. Two halves in turn: the CPU joins them to one write of the line.
[[gnu::target("avx")]] void stream_lines(std::byte* to, const std::byte* from, std::size_t lines) {
  for (std::size_t line = 0; line < lines; ++line, to += kLine, from += kLine) {
    const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + kLine / 2));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), left);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + kLine / 2), right);
  }
  _mm_sfence();  // such stores are ordered with no others, releases included
}
#endif

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) {
    const std::size_t before = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kLine);
    const std::size_t lines = (bytes - before) / kLine;
    const std::size_t streamed = before + lines * kLine;
    if (before > 0) std::memcpy(to, from, before);
    stream_lines(to + before, from + before, lines);
    if (bytes > streamed) std::memcpy(to + streamed, from + streamed, bytes - streamed);
    return;
  }
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace shoal::detail
