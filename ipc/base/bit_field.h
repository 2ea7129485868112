// One field of bits in a word that shared memory changes as a whole.
#pragma once

#include <cstdint>

namespace shoal {

/// Bits Begin to Begin + Bits - 1 of a 64-bit word. Pure functions: a word that is made of several fields names each
/// of them once, instead of a shift and a mask at every use.
template <unsigned Begin, unsigned Bits>
struct BitField {
  static_assert(Bits > 0 && Bits < 64 && Begin + Bits <= 64);

  static constexpr std::uint64_t kMost = (std::uint64_t(1) << Bits) - 1;
  static constexpr std::uint64_t kOne = std::uint64_t(1) << Begin;
  static constexpr std::uint64_t kMask = kMost << Begin;  // the field's bits where they lie
  static constexpr unsigned kBegin = Begin;
  static constexpr unsigned kBits = Bits;
  static constexpr unsigned kEnd = Begin + Bits;

  static constexpr std::uint64_t of(std::uint64_t word) { return word >> Begin & kMost; }
  /// The field's part of a word. What does not fit is cut off: counts wrap around.
  static constexpr std::uint64_t make(std::uint64_t value) { return (value & kMost) << Begin; }
};

}  // namespace shoal
