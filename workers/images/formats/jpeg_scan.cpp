#include <shoal/internal/workers/images/formats/jpeg_scan.h>

#include <cstdio>
// Behind FILE.
#include <jerror.h>
#include <jpeglib.h>

#if __has_include(<jpegint.h>) && !defined(SHOAL_LIBJPEG_ALONE)
// What libjpeg's parts know of each other. Of it a pointer is used that has had its place from libjpeg 6 to libjpeg-turbo 3.
#include <jpegint.h>
#undef MAX
#undef MIN
#define SHOAL_DECODES_SCANS
#endif

#include <shoal/internal/workers/images/formats/jpeg_codes.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

namespace shoal::jpeg {

#ifndef SHOAL_DECODES_SCANS
bool take_over_scan(jpeg_decompress_struct&, MemoryAhead*) { return false; }
bool decodes_scans() { return false; }
#else
namespace {

constexpr int kCoefficients = DCTSIZE2;
/// Where in a block's rows coefficient k lies (T.81, figure 5).
constexpr auto kPlaces = [] {
  std::array<std::uint8_t, kCoefficients> places{};
  int row = 0, column = 0;
  for (std::uint8_t& place : places) {
    place = std::uint8_t(row * DCTSIZE + column);
    const bool goes_up = (row + column) % 2 == 0;
    int& along = goes_up ? column : row;
    int& against = goes_up ? row : column;
    if (along == DCTSIZE - 1)
      ++against;
    else {
      ++along;
      if (against > 0) --against;
    }
  }
  return places;
}();

/// Bytes of a scan without those that are stuffed in behind 0xFF, some at a time.
class ScanBytes {
 public:
  /// Blocks that are decoded at a time have at most so many bytes, each coefficient a longest word and its value; and what
  /// refill() reads behind them.
  static constexpr std::size_t kAtOnce = std::size_t(D_MAX_BLOCKS_IN_MCU) * kCoefficients * 4 + 16;

  void begin(const std::uint8_t* bytes, std::size_t size) {
    source_ = bytes;
    source_end_ = bytes + size;
    end_ = bytes_.data();
    is_whole_ = has_marker_ = false;
  }
  /// kAtOnce bytes from bits.next on can be read, of which zeros lie behind the scan's end.
  void provide(ScanBits& bits) {
    if (!is_whole_ && (bits.next == nullptr || end_ - bits.next < std::ptrdiff_t(kAtOnce))) fetch(bits);
  }
  bool is_whole() const { return is_whole_; }      // its end is here
  bool has_marker() const { return has_marker_; }  // at the end, and not only no more bytes
  /// Bits that were taken from behind the end, if more than 0; less whole bytes that were not, times 8. Once it is whole.
  std::ptrdiff_t bits_too_many(const ScanBits& bits) const { return (bits.next - end_) * 8 - bits.held; }
  /// Where libjpeg goes on: at the marker, at the end, or in the midst of what nobody asked for.
  const std::uint8_t* source() const { return source_; }
  std::size_t behind() const { return std::size_t(source_end_ - source_); }

 private:
  static constexpr std::size_t kWindow = std::size_t(32) << 10U;

  void fetch(ScanBits& bits) {
    const std::size_t unread = bits.next == nullptr ? 0 : std::size_t(end_ - bits.next);
    if (unread > 0) std::memmove(bytes_.data(), bits.next, unread);
    bits.next = bytes_.data();
    end_ = bytes_.data() + unread;
    std::uint8_t* const full = bytes_.data() + kWindow;
    while (!is_whole_ && end_ < full) copy_up_to_ff(std::size_t(full - end_));
    if (is_whole_) std::memset(end_, 0, kAtOnce);
  }
  void copy_up_to_ff(std::size_t most) {
    most = std::min(most, behind());
    const void* found = most == 0 ? nullptr : std::memchr(source_, 0xFF, most);
    const std::size_t plain = found != nullptr ? std::size_t(static_cast<const std::uint8_t*>(found) - source_) : most;
    std::memcpy(end_, source_, plain);
    end_ += plain;
    source_ += plain;
    if (found != nullptr)
      pass_ff();
    else
      is_whole_ = source_ == source_end_;
  }
  /// Of several in a row the last counts: the others are filling.
  void pass_ff() {
    const std::uint8_t* code = std::find_if(source_, source_end_, [](std::uint8_t byte) { return byte != 0xFF; });
    if (code != source_end_ && *code == 0) {
      *end_++ = 0xFF;
      source_ = code + 1;
      return;
    }
    is_whole_ = true;
    has_marker_ = code != source_end_;
    source_ = has_marker_ ? code - 1 : code;
  }

  const std::uint8_t *source_ = nullptr, *source_end_ = nullptr;  // of the JPEG's bytes, what was not fetched
  std::uint8_t* end_ = nullptr;                                   // of what was
  bool is_whole_ = false, has_marker_ = false;
  std::array<std::uint8_t, kWindow + kAtOnce> bytes_;
};

/// A table, made again only for other words: most pictures have the same ones.
class KeptTable {
 public:
  bool is_of(const JHUFF_TBL& its) const {
    return table_ && std::ranges::equal(counts_, its.bits) && std::ranges::equal(symbols_, its.huffval);
  }
  const CodeTable& of(CodeTable::Kind kind, const JHUFF_TBL& its) {
    if (!is_of(its)) {
      std::ranges::copy(its.bits, counts_.begin());
      std::ranges::copy(its.huffval, symbols_.begin());
      table_.emplace(kind, counts_, symbols_);
    }
    return *table_;
  }

 private:
  std::array<std::uint8_t, 17> counts_;
  std::array<std::uint8_t, 256> symbols_;
  std::optional<CodeTable> table_;
};

/// A picture's scan. A thread has one, for one picture after the other; libjpeg may jump out of it at a warning.
class Scan {
 public:
  /// Making tables takes as long as what they save in a small picture.
  bool is_worthwhile(const jpeg_decompress_struct& info) const {
    constexpr std::size_t kFewBlocks = 300;  // some 100 x 100 pixels
    if (calls_of(info) * std::size_t(info.blocks_in_MCU) >= kFewBlocks) return true;
    for (int i = 0; i < info.comps_in_scan; ++i) {
      const jpeg_component_info& its = *info.cur_comp_info[i];
      if (!differences_[std::size_t(its.dc_tbl_no)].is_of(*info.dc_huff_tbl_ptrs[its.dc_tbl_no]) ||
          !coefficients_[std::size_t(its.ac_tbl_no)].is_of(*info.ac_huff_tbl_ptrs[its.ac_tbl_no]))
        return false;
    }
    return true;
  }

  void begin(jpeg_decompress_struct& info, MemoryAhead* ahead) {
    of_ = &info;
    ahead_ = ahead;
    for (int i = 0; i < info.blocks_in_MCU; ++i) {
      const int component = info.MCU_membership[i];
      const jpeg_component_info& its = *info.cur_comp_info[component];
      blocks_[std::size_t(i)] = {&differences_[std::size_t(its.dc_tbl_no)].of(CodeTable::Kind::kDifferences,
                                                                              *info.dc_huff_tbl_ptrs[its.dc_tbl_no]),
                                 &coefficients_[std::size_t(its.ac_tbl_no)].of(CodeTable::Kind::kCoefficients,
                                                                               *info.ac_huff_tbl_ptrs[its.ac_tbl_no]),
                                 component};
    }
    bytes_.begin(info.src->next_input_byte, info.src->bytes_in_buffer);
    bits_ = {};
    predictions_ = {};
    left_ = calls_of(info);
    has_ended_ = false;
    info.client_data = this;
    info.entropy->decode_mcu = &decode_for_any;
#if defined(__x86_64__)
    static const bool shifts_by_any_register = __builtin_cpu_supports("bmi2");
    if (shifts_by_any_register) info.entropy->decode_mcu = &decode_for_bmi2;
#endif
  }

 private:
  static boolean decode_for_any(j_decompress_ptr info, JBLOCKROW* blocks) {
    static_cast<Scan*>(info->client_data)->decode(*info, blocks);
    return TRUE;
  }
#if defined(__x86_64__)
  /// A twentieth less time for a picture: each word waits for a shift by the bits of the one before.
  [[gnu::target("bmi2")]] static boolean decode_for_bmi2(j_decompress_ptr info, JBLOCKROW* blocks) {
    static_cast<Scan*>(info->client_data)->decode(*info, blocks);
    return TRUE;
  }
#endif

  static std::size_t calls_of(const jpeg_decompress_struct& info) {
    return std::size_t(info.MCUs_per_row) * info.MCU_rows_in_scan;
  }

  /// What the blocks that are decoded together are, in order.
  struct BlockTables {
    const CodeTable* differences;
    const CodeTable* coefficients;
    int component;
  };

  /// `blocks`: of zeros; null if nobody wants them.
  [[gnu::always_inline]] inline void decode(jpeg_decompress_struct& info, JBLOCKROW* blocks) {
    // Another picture of this thread has begun since: what is kept here is that one's.
    if (of_ != &info) ERREXIT1(&info, JERR_BAD_STATE, info.global_state);
    --left_;
    if (!has_ended_) {
      bytes_.provide(bits_);
      ScanBits bits = bits_;
      bool is_damaged = false;
      for (std::size_t i = 0; i < std::size_t(info.blocks_in_MCU); ++i) {
        if (ahead_ != nullptr) ahead_->fetch_some();
        is_damaged |= !decode_block(bits, blocks_[i], blocks != nullptr ? *blocks[i] : unwanted_);
      }
      bits_ = bits;
      has_ended_ = bytes_.is_whole() && bytes_.bits_too_many(bits) > 0;
      if (is_damaged) WARNMS(&info, JWRN_HUFF_BAD_CODE);
      if (has_ended_) {  // from here on blocks stay zeros
        if (!bytes_.has_marker()) WARNMS(&info, JWRN_JPEG_EOF);
        WARNMS(&info, JWRN_HIT_MARKER);
      }
    }
    if (left_ == 0) give_back(info);
  }

  /// False if some of it is no word. Refilled bits are enough for a longest word and its value behind two looks.
  [[gnu::always_inline]] inline bool decode_block(ScanBits& bits, const BlockTables& tables, JCOEF* block) {
    static_assert(ScanBits::kRefilled - 2 * CodeTable::kBits >= CodeTable::kBitsOfNone + 15);
    bits.refill();
    std::uint32_t& prediction = predictions_[std::size_t(tables.component)];
    const CodeTable::Word difference = tables.differences->word(bits.window);
    bool is_damaged = difference.bits == CodeTable::kBitsOfNone;
    bits.drop(difference.bits);
    prediction += std::uint32_t(bits.take_value(difference.symbol & 0xF));
    block[0] = JCOEF(prediction);
    const CodeTable& coefficients = *tables.coefficients;
    for (int k = 0;;) {
      bits.refill();
      int looks = 3;
      CodeTable::Look look;
      for (; looks > 0 && (look = coefficients.look(bits.window)); --looks) {
        const int first = k + look.advance();
        k = first + look.second_advance();
        if (k >= kCoefficients - 1) {
          end_block(bits, look, first, block);
          return !is_damaged;
        }
        bits.drop(look.bits());
        block[kPlaces[std::size_t(first)]] = JCOEF(look.value());
        block[kPlaces[std::size_t(k)]] = JCOEF(look.second_value());
      }
      if (looks == 0) continue;
      const CodeTable::Word word = coefficients.word(bits.window);
      is_damaged |= word.bits == CodeTable::kBitsOfNone;
      bits.drop(word.bits);
      const int zeros = word.symbol >> 4, of_value = word.symbol & 0xF;
      if (of_value == 0 && zeros != 15) return !is_damaged;
      k += zeros + 1;
      if (of_value != 0) block[kPlaces[std::size_t(std::min(k, kCoefficients - 1))]] = JCOEF(bits.take_value(of_value));
      if (k >= kCoefficients - 1) return !is_damaged;
    }
  }

  /// The last coefficients of a block, of which the second lies at its last place or behind, if not the first does. Those of
  /// damaged pictures may lie behind: libjpeg leaves them at the last place.
  static void end_block(ScanBits& bits, const CodeTable::Look& look, int first, JCOEF* block) {
    constexpr int kLast = kCoefficients - 1;
    if (first < kLast) {
      bits.drop(look.bits());
      block[kPlaces[std::size_t(first)]] = JCOEF(look.value());
      if (look.second_advance() != CodeTable::kEnd) block[kLast] = JCOEF(look.second_value());
    } else {  // what comes behind it is the next block's
      bits.drop(look.first_bits());
      if (look.advance() != CodeTable::kEnd) block[kLast] = JCOEF(look.value());
    }
  }

  /// The rest is libjpeg's. Up to 7 bytes in front of the marker it may have taken, and not missed.
  void give_back(jpeg_decompress_struct& info) {
    static constexpr std::array<JOCTET, 2> kEnd{0xFF, JPEG_EOI};
    info.src->next_input_byte = bytes_.source();
    info.src->bytes_in_buffer = bytes_.behind();
    if (!bytes_.is_whole()) return;            // it looks for the marker itself
    if (has_ended_ && !bytes_.has_marker()) {  // it has been told, and would have made up this one
      info.src->next_input_byte = kEnd.data();
      info.src->bytes_in_buffer = kEnd.size();
    }
    const std::ptrdiff_t unread = -bytes_.bits_too_many(bits_) / 8;
    if (unread > 7 && bytes_.has_marker()) WARNMS2(&info, JWRN_EXTRANEOUS_DATA, int(unread), bytes_.source()[1]);
  }

  const jpeg_decompress_struct* of_ = nullptr;
  MemoryAhead* ahead_ = nullptr;
  ScanBytes bytes_;
  ScanBits bits_;
  std::array<std::uint32_t, MAX_COMPS_IN_SCAN> predictions_{};  // the last block's difference is added to its
  std::size_t left_ = 0;                                        // calls that are still to come
  bool has_ended_ = false;                                      // before the blocks did
  std::array<BlockTables, D_MAX_BLOCKS_IN_MCU> blocks_{};
  std::array<KeptTable, NUM_HUFF_TBLS> differences_, coefficients_;
  JBLOCK unwanted_;
};

bool is_taken_over(jpeg_decompress_struct& info) {
  // A library with libjpeg's functions need not have its parts.
  if (info.entropy == nullptr || info.entropy->decode_mcu == nullptr) return false;
  return info.data_precision == 8 && !info.arith_code && !info.progressive_mode && info.restart_interval == 0 &&
         info.comps_in_scan == info.num_components && jpeg_has_multiple_scans(&info) == 0 && info.Ss == 0 &&
         info.Se == kCoefficients - 1 && info.Ah == 0 && info.Al == 0;
}

}  // namespace

bool decodes_scans() { return true; }

bool take_over_scan(jpeg_decompress_struct& info, MemoryAhead* ahead) {
  if (!is_taken_over(info)) return false;
  thread_local std::unique_ptr<Scan> scan;
  if (scan == nullptr) scan = std::make_unique<Scan>();
  if (!scan->is_worthwhile(info)) return false;
  scan->begin(info, ahead);
  return true;
}
#endif

}  // namespace shoal::jpeg
