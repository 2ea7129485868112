// Who owns a thing in shared memory.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>

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
  using Slot = BitField<0, 12>;
  using Generation = BitField<Slot::kEnd, 19>;
  using InTransit = BitField<Generation::kEnd, 1>;

  static constexpr std::uint32_t kSlotCount = Slot::kMost + 1;
  static constexpr std::uint32_t kGenerationMask = Generation::kMost;
  static constexpr std::uint32_t kTransit = InTransit::kOne;

  constexpr ProcessTag() = default;
  constexpr ProcessTag(std::uint32_t slot, std::uint32_t generation)
      : word_(std::uint32_t(Slot::make(slot) | Generation::make(generation))) {}
  static constexpr ProcessTag from_word(std::uint32_t word) {
    ProcessTag tag;
    tag.word_ = word & ~kTransit;
    return tag;
  }

  constexpr std::uint32_t word() const { return word_; }
  constexpr std::uint32_t transit_word() const { return word_ | kTransit; }
  constexpr std::uint32_t slot() const { return std::uint32_t(Slot::of(word_)); }
  constexpr std::uint32_t generation() const { return std::uint32_t(Generation::of(word_)); }
  constexpr explicit operator bool() const { return word_ != 0; }
  constexpr bool operator==(const ProcessTag&) const = default;

 private:
  std::uint32_t word_ = 0;
};

static_assert(ProcessTag::InTransit::kEnd == 32);

}  // namespace shoal
