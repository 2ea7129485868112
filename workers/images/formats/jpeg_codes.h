// A Huffman table of a JPEG, as what a look at the next bits says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal::jpeg {

/// Bits of a scan, from the first on. What they are taken from may be read for 8 bytes behind the place where they are, and has no
/// stuffed bytes. A value: whoever decodes keeps a copy in registers.
struct ScanBits {
  static constexpr int kRefilled = 56;  // bits that are held at least after refill()
  std::uint64_t window = 0;  // the next bits, from the highest; behind the `held` ones some may be there already
  int held = 0;
  const std::uint8_t* next = nullptr;  // the first byte of which not all bits are held

  void refill() {
    std::uint64_t bytes;
    __builtin_memcpy(&bytes, next, sizeof bytes);
    if constexpr (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) bytes = __builtin_bswap64(bytes);
    window |= bytes >> held;
    next += (63 - held) >> 3;  // whole bytes that fit: from now on 56 to 63 bits are held
    held |= kRefilled;
  }
  void drop(int bits) {
    window <<= bits;
    held -= bits;
  }
  /// `bits`, 0 to 16, as the number that they stand for (T.81, table F.1): the lower half of what they can be is negative. No
  /// branch: how many there are nobody can guess.
  int take_value(int bits) {
    const int value = int(window >> 1U >> (63 - bits)), is_negative = int(~window >> 63U);
    drop(bits);
    return value - (is_negative << bits) + is_negative;
  }
};

/// A coefficient is a code word, which says how many zeros precede it and how many bits its value has, and these bits (ITU T.81,
/// annex F). Most are small: one look at the next kBits bits says one or two of them, if words and values have as many bits at
/// most. Where the next word begins is known when the one before is: so two at a time take hardly longer than one. Any thread
/// may read.
class CodeTable {
 public:
  static constexpr int kBits = 10;
  static constexpr int kLongestWord = 16;
  /// What no word of the table begins with is taken for one of so many bits with symbol 0, as libjpeg does.
  static constexpr int kBitsOfNone = kLongestWord + 1;
  static constexpr int kEnd = 64;  // how far it is behind the last coefficient that is not zero: out of the block

  /// Words and their values; or nothing.
  class Look {
   public:
    Look() = default;
    Look(int bits, int advance, int value) : Look(bits, bits, advance, value, 0, value) {}
    /// Both, one behind the other.
    Look(const Look& first, const Look& second)
        : Look(first.bits() + second.bits(), first.bits(), first.advance(), first.value(), second.advance(),
               second.value()) {}
    explicit operator bool() const { return packed_ != 0; }
    int bits() const { return int(packed_ & 0xFFU); }
    int first_bits() const { return int(packed_ >> 24U & 0xFFU); }  // without those of a second one
    int advance() const { return int(packed_ >> 8U & 0xFFU); }      // places from the last coefficient to this one
    int value() const { return std::int16_t(packed_ >> 32U); }
    /// From that one to the next. 0 if it is the last that is known: it comes again.
    int second_advance() const { return int(packed_ >> 16U & 0xFFU); }
    int second_value() const { return std::int16_t(packed_ >> 48U); }

   private:
    Look(int bits, int first_bits, int advance, int value, int second_advance, int second_value)
        : packed_(std::uint64_t(bits) | std::uint64_t(advance) << 8U | std::uint64_t(second_advance) << 16U |
                  std::uint64_t(first_bits) << 24U | std::uint64_t(std::uint16_t(value)) << 32U |
                  std::uint64_t(std::uint16_t(second_value)) << 48U) {}
    std::uint64_t packed_ = 0;
  };
  struct Word {
    int bits, symbol;
  };
  /// What a table's symbols mean: bits of a difference, or zeros and bits of a coefficient. Behind a difference comes a word of
  /// another table.
  enum class Kind { kDifferences, kCoefficients };

  /// `counts`: of words of 0 (none), 1 to 16 bits; `symbols`: theirs, in order. libjpeg has checked them.
  CodeTable(Kind kind, std::span<const std::uint8_t, 17> counts, std::span<const std::uint8_t, 256> symbols);

  Look look(std::uint64_t window) const { return looks_[window >> (64 - kBits)]; }
  /// The next word alone, of any length.
  Word word(std::uint64_t window) const {
    const std::uint16_t is_short = words_[window >> (64 - kBits)];
    return is_short != 0 ? Word{is_short >> 8, is_short & 0xFF} : long_word(window);
  }

 private:
  Word long_word(std::uint64_t window) const;
  void look_at_two();

  std::array<Look, 1U << kBits> looks_{};
  std::array<std::uint16_t, 1U << kBits> words_{};  // bits and symbol of words of at most kBits bits; 0: it is longer
  // Of longer ones, by their bits: what the next 16 bits are below, and where the symbol of word 0 would be.
  std::array<std::uint32_t, kBitsOfNone + 1> limits_{};
  std::array<std::int32_t, kBitsOfNone> firsts_{};
  std::array<std::uint8_t, 256> symbols_;
};

}  // namespace shoal::jpeg
