// Who owns a thing in shared memory.
#pragma once

#include <compare>
#include <cstdint>

namespace shoal {

/// Names one process of a session for as long as the session lives: its slot in the process table
/// and the slot's generation, so that a later process in the same slot is another owner. Fits the
/// 32-bit words in which shared memory notes its owners; 0 is nobody.
///
///   bits 0..11 slot   bits 12..30 generation (never 0)   bit 31 in transit
///
/// In transit: the hold belongs to a message that this process wrote, not to the process itself.
class ProcessTag {
 public:
  static constexpr std::uint32_t kSlotBits = 12;
  static constexpr std::uint32_t kSlotCount = 1u << kSlotBits;
  static constexpr std::uint32_t kGenerationMask = (1u << 19) - 1;
  static constexpr std::uint32_t kTransit = 1u << 31;

  constexpr ProcessTag() = default;
  constexpr ProcessTag(std::uint32_t slot, std::uint32_t generation)
      : word_(slot | (generation & kGenerationMask) << kSlotBits) {}
  static constexpr ProcessTag from_word(std::uint32_t word) {
    ProcessTag tag;
    tag.word_ = word & ~kTransit;
    return tag;
  }

  constexpr std::uint32_t word() const { return word_; }
  constexpr std::uint32_t transit_word() const { return word_ | kTransit; }
  constexpr std::uint32_t slot() const { return word_ & (kSlotCount - 1); }
  constexpr std::uint32_t generation() const { return word_ >> kSlotBits & kGenerationMask; }
  constexpr explicit operator bool() const { return word_ != 0; }
  constexpr bool operator==(const ProcessTag&) const = default;

 private:
  std::uint32_t word_ = 0;
};

}  // namespace shoal
