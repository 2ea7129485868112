// What a block of the campaign is filled with: every word tells which block, whose, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace shoal::test {

/// Word i of a block is first + i * kStep, so from a word that lies where it does not belong the block that it was
/// meant for can be told. Words of odd i may be bait instead: what a ring's cell or a hold word of some process would
/// look like, which draws whoever takes this memory for a ring or for hold words.
struct Pattern {
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

  std::uint64_t first = 0;
  std::uint64_t bait = 0;  // 0: none

  static Pattern of(std::uint32_t serial, std::uint32_t owner, std::uint64_t payload, std::uint64_t bait) {
    return {mix(mix(std::uint64_t(serial) << 32 | owner) ^ payload) | 1, bait};
  }

  std::uint64_t word(std::uint64_t index) const { return index % 2 != 0 && bait != 0 ? bait : first + index * kStep; }

  void fill(std::byte* bytes, std::size_t size) const {
    const std::size_t words = size / 8;
    std::uint64_t even = first;
    for (std::size_t i = 0; i + 1 < words; i += 2, even += 2 * kStep) {
      const std::uint64_t two[2] = {even, bait != 0 ? bait : even + kStep};
      std::memcpy(bytes + i * 8, two, sizeof two);
    }
    for (std::size_t i = words / 2 * 2; i * 8 < size; ++i) {
      const std::uint64_t last = word(i);
      std::memcpy(bytes + i * 8, &last, size - i * 8 < 8 ? size - i * 8 : 8);
    }
  }

  /// The same for one word in kSparse bytes alone: for blocks that come and go too fast for all of it.
  static constexpr std::size_t kSparse = 64u << 10;
  void fill_sparsely(std::byte* bytes, std::size_t size) const {
    for (std::size_t at = 0; at + 8 <= size; at += kSparse) {
      const std::uint64_t value = word(at / 8);
      std::memcpy(bytes + at, &value, 8);
    }
  }
  std::optional<std::uint64_t> find_sparse_damage(const std::byte* bytes, std::size_t size) const {
    for (std::size_t at = 0; at + 8 <= size; at += kSparse)
      if (const std::uint64_t expected = word(at / 8); std::memcmp(bytes + at, &expected, 8) != 0) return at / 8;
    return std::nullopt;
  }

  /// The first word that is not what it should be.
  std::optional<std::uint64_t> find_damage(const std::byte* bytes, std::size_t size) const {
    constexpr std::size_t kAtOnce = 64;  // words between two looks
    const std::size_t words = size / 8 / kAtOnce * kAtOnce;
    std::uint64_t even = first;
    for (std::size_t i = 0; i < words; i += kAtOnce) {
      std::uint64_t wrong = 0;
      for (std::size_t k = 0; k < kAtOnce; k += 2, even += 2 * kStep) {
        std::uint64_t two[2];
        std::memcpy(two, bytes + (i + k) * 8, sizeof two);
        wrong |= (two[0] ^ even) | (two[1] ^ (bait != 0 ? bait : even + kStep));
      }
      if (wrong != 0) return find_word(bytes, size, i);
    }
    return find_word(bytes, size, words);
  }

  /// Which word of the block this value would be, if it is one of an even place.
  std::uint64_t place_of(std::uint64_t value) const { return (value - first) * inverse(); }

 private:
  std::optional<std::uint64_t> find_word(const std::byte* bytes, std::size_t size, std::size_t from) const {
    for (std::size_t i = from; i * 8 < size; ++i) {
      const std::uint64_t expected = word(i);
      if (std::memcmp(bytes + i * 8, &expected, size - i * 8 < 8 ? size - i * 8 : 8) != 0) return i;
    }
    return std::nullopt;
  }

  /// Of kStep, modulo 2^64, by Newton's iteration.
  static constexpr std::uint64_t inverse() {
    std::uint64_t guess = kStep;
    for (int i = 0; i < 6; ++i) guess *= 2 - kStep * guess;
    return guess;
  }
  static constexpr std::uint64_t mix(std::uint64_t value) {
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
  }
};

}  // namespace shoal::test
