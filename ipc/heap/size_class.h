// Which block sizes the heap makes.
#pragma once

#include <shoal/internal/ipc/layout/session_layout.h>

#include <array>
#include <bit>
#include <cstdint>

namespace shoal {

/// Blocks up to kLargestSmall share an extent with others of their class; larger ones get a run of
/// extents. Classes are 4 to a doubling, so at most a fifth of a block is unused; from 4 KiB on they
/// are whole pages, so payloads are page aligned. Pure functions.
class SizeClass {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kLargestSmall = kExtentBytes / 2;
  static constexpr std::uint32_t kSmallCount = 52;

  /// No process could ever address a larger block. The sums and roundings of sizes up to it do not wrap around.
  static constexpr std::uint64_t kMost = 1ull << 47;

  /// Throws OutOfSharedMemory if the size is beyond kMost. Whoever adds something to a size of the user's asks
  /// first.
  static constexpr void check(std::uint64_t bytes) {
    if (bytes > kMost) [[unlikely]]
      refuse(bytes);
  }

  static constexpr bool is_small(std::uint64_t bytes) { return bytes <= kLargestSmall; }

  /// Index of the smallest class whose blocks hold `bytes`.
  static constexpr std::uint32_t of(std::uint64_t bytes) {
    if (bytes <= 4 * kBlockAlignment) return bytes == 0 ? 0 : (bytes - 1) / kBlockAlignment;
    unsigned top = std::bit_width(bytes - 1) - 1;          // floor(log2), at least 8
    std::uint64_t quarter = (bytes - 1) >> (top - 2) & 3;  // which quarter of the doubling
    return kShared[4 + (top - 8) * 4 + std::uint32_t(quarter)];
  }

  /// Distance between two blocks of the class.
  static constexpr std::uint64_t stride(std::uint32_t size_class) {
    if (size_class < 4) return (size_class + 1) * kBlockAlignment;
    unsigned top = 8 + (size_class - 4) / 4;
    std::uint64_t bytes = (1ull << top) + ((size_class - 4) % 4 + 1) * (1ull << (top - 2));
    return bytes > kPage ? (bytes + kPage - 1) / kPage * kPage : bytes;
  }

  /// Blocks of an extent.
  static constexpr std::uint32_t blocks(std::uint32_t size_class) {
    return std::uint32_t(kExtentBytes / stride(size_class));
  }

  /// Extents of the run for a large block: exact up to 16, then in steps of a 16th, so that a
  /// freed run fits the next block of about that size. Throws as check().
  static constexpr std::uint64_t run(std::uint64_t bytes) {
    check(bytes);
    std::uint64_t extents = (bytes + kExtentBytes - 1) / kExtentBytes;
    if (extents <= 16) return extents;
    std::uint64_t step = 1ull << (std::bit_width(extents) - 5);
    return (extents + step - 1) / step * step;
  }

 private:
  [[noreturn]] static void refuse(std::uint64_t bytes);

  /// For each class the largest one of which an extent holds as many: they share its extents, so fewer extents are
  /// partly empty. (From 4 KiB on strides are whole pages, and few fit into an extent in the end.)
  static const std::array<std::uint8_t, kSmallCount> kShared;
};

constexpr std::array<std::uint8_t, SizeClass::kSmallCount> SizeClass::kShared = [] {
  std::array<std::uint8_t, kSmallCount> shared{};
  for (std::uint32_t i = 0; i < kSmallCount; ++i) {
    std::uint32_t last = i;
    while (last + 1 < kSmallCount && blocks(last + 1) == blocks(last)) ++last;
    shared[i] = std::uint8_t(last);
  }
  return shared;
}();

static_assert(SizeClass::stride(SizeClass::of(64)) == 64 && SizeClass::stride(SizeClass::of(257)) == 320);
static_assert(SizeClass::stride(SizeClass::of(4097)) == 8192 &&
              SizeClass::of(SizeClass::kLargestSmall) < SizeClass::kSmallCount);

}  // namespace shoal
