// One field of bits in a word that shared memory changes as a whole.
#pragma once

#include <cstdint>

namespace shoal {

/// Bits kBegin to kBegin + kBits - 1 of a 64-bit word. Pure functions: a word that is made of several fields names each
/// of them once, instead of a shift and a mask at every use.
template <unsigned kBegin, unsigned kBits>
struct BitField {
  static_assert(kBits > 0 && kBits < 64 && kBegin + kBits <= 64);

  static constexpr std::uint64_t kMost = (std::uint64_t(1) << kBits) - 1;
  static constexpr std::uint64_t kOne = std::uint64_t(1) << kBegin;
  static constexpr unsigned kEnd = kBegin + kBits;

  static constexpr std::uint64_t of(std::uint64_t word) { return word >> kBegin & kMost; }
  /// The field's part of a word. What does not fit is cut off: counts wrap around.
  static constexpr std::uint64_t make(std::uint64_t value) { return (value & kMost) << kBegin; }
};

}  // namespace shoal
