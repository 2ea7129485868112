#include <shoal/internal/workers/images/formats/jpeg_codes.h>

#include <algorithm>
#include <limits>

namespace shoal::jpeg {
namespace {

/// Fifteen zeros and a value without bits are sixteen zeros; fewer, the block's end.
int advance_of(int zeros, int bits) { return bits != 0 || zeros == 15 ? zeros + 1 : CodeTable::kEnd; }

}  // namespace

CodeTable::CodeTable(Kind kind, std::span<const std::uint8_t, 17> counts, std::span<const std::uint8_t, 256> symbols) {
  std::ranges::copy(symbols, symbols_.begin());
  std::uint32_t word = 0, at = 0;  // the next one, and its symbol's place
  for (int bits = 1; bits <= kLongestWord; ++bits, word <<= 1U) {
    firsts_[std::size_t(bits)] = std::int32_t(at) - std::int32_t(word);
    for (int i = 0; i < counts[std::size_t(bits)]; ++i, ++word, ++at) {
      if (bits > kBits) continue;
      const int symbol = symbols_[at & 0xFFU];
      const int zeros = kind == Kind::kDifferences ? 0 : symbol >> 4;
      const int of_value = kind == Kind::kDifferences ? symbol : symbol & 0xF;
      const int behind = kBits - bits;
      const std::size_t place = (std::size_t(word) << unsigned(behind)) % looks_.size();
      std::fill_n(words_.begin() + std::ptrdiff_t(place), std::size_t(1) << unsigned(behind),
                  std::uint16_t(bits << 8 | symbol));
      if (of_value > behind) continue;
      // All that the value can be, and what follows it.
      const int advance = kind == Kind::kDifferences ? 0 : advance_of(zeros, of_value);
      const std::size_t same = std::size_t(1) << unsigned(behind - of_value);
      for (std::size_t value = 0; value < std::size_t(1) << unsigned(of_value); ++value) {
        ScanBits its{.window = std::uint64_t(value) << 1U << unsigned(63 - of_value), .held = of_value};
        std::fill_n(looks_.begin() + std::ptrdiff_t(place + value * same), same,
                    Look(bits + of_value, advance, its.take_value(of_value)));
      }
    }
    limits_[std::size_t(bits)] = word << unsigned(kLongestWord - bits);
  }
  limits_[kBitsOfNone] = std::numeric_limits<std::uint32_t>::max();
  if (kind == Kind::kCoefficients) look_at_two();
}

void CodeTable::look_at_two() {
  const std::array<Look, 1U << kBits> first = looks_;
  for (std::size_t place = 0; place < looks_.size(); ++place) {
    const Look& one = first[place];
    if (!one || one.advance() == kEnd) continue;
    // What follows it, with zeros for bits that were not looked at: these must not matter.
    const Look& next = first[(place << unsigned(one.bits())) % first.size()];
    if (next && one.bits() + next.bits() <= kBits) looks_[place] = Look(one, next);
  }
}

CodeTable::Word CodeTable::long_word(std::uint64_t window) const {
  const auto next = std::uint32_t(window >> (64 - kLongestWord));
  int bits = kBits + 1;
  while (next >= limits_[std::size_t(bits)]) ++bits;
  if (bits == kBitsOfNone) return {kBitsOfNone, 0};
  const std::int32_t place = std::int32_t(next >> unsigned(kLongestWord - bits)) + firsts_[std::size_t(bits)];
  return {bits, symbols_[std::size_t(place) & 0xFFU]};
}

}  // namespace shoal::jpeg
