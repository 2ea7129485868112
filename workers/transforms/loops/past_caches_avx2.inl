// Bytes that nobody reads soon, by AVX2: pixel_loops.cpp includes this.
//
// A store by way of the caches reads its line from memory first, and later the line is written there. One that goes past them
// only writes: lines that are filled whole, one after the other, are half of the traffic.

#define SHOAL_LOOP_BODY [[gnu::always_inline]] SHOAL_LOOP inline

/// Where `out` begins within a vector's bytes the caches take it, since these stores want whole vectors.
SHOAL_LOOP_BODY void put_past_caches(void* out, const void* bytes, std::size_t size) {
  auto* to = static_cast<std::uint8_t*>(out);
  const auto* from = static_cast<const std::uint8_t*>(bytes);
  std::size_t i = 0;
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(__m256i) == 0)
    for (; i + sizeof(__m256i) <= size; i += sizeof(__m256i))
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), words_at(from + i));
  std::memcpy(to + i, from + i, size - i);
}
/// x86 orders all stores but these.
SHOAL_LOOP_BODY void settle_body() { _mm_sfence(); }

#undef SHOAL_LOOP_BODY
