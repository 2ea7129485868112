// The word that says what an extent is used for, and by whom.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <shoal/internal/ipc/layout/session_layout.h>

#include <cstdint>

namespace shoal {

/// `state` of an ExtentRecord, taken apart. A plain value.
///
///   bits 0..3 use   bits 4..15 owner's slot   bits 16..35 value   bits 36..63 generation
///
/// The value is the size class (kSmall), the extents of the run (kHead, kCut) or the distance from the head (kTail).
/// The generation grows by one with every change: whoever acts on a word that it read a while ago, and was stopped
/// since, finds another word also if the extent has come back to the same use. (It wraps around after 2^28 changes
/// of one extent: a process would have to be stopped across exactly that many.)
struct ExtentState {
  using Use = BitField<0, 4>;
  using Owner = BitField<Use::kEnd, ProcessTag::Slot::kEnd>;
  using Value = BitField<Owner::kEnd, 20>;
  using Generation = BitField<Value::kEnd, 28>;

  /// Extents of the longest run: 2 TiB.
  static constexpr std::uint64_t kLongestRun = Value::kMost;

  std::uint64_t word = 0;

  ExtentRecord::Use use() const { return ExtentRecord::Use(Use::of(word)); }
  std::uint32_t owner() const { return std::uint32_t(Owner::of(word)); }
  std::uint32_t size_class() const { return std::uint32_t(Value::of(word)); }  // kSmall
  std::uint64_t run() const { return Value::of(word); }  // kHead, kCut: extents in all; kTail: distance from the head
  std::uint64_t generation() const { return Generation::of(word); }

  bool is(ExtentRecord::Use use, std::uint32_t owner) const { return this->use() == use && this->owner() == owner; }
  bool is(ExtentRecord::Use use, std::uint32_t owner, std::uint64_t value) const {
    return is(use, owner) && Value::of(word) == value;
  }

  /// What this word is changed to.
  ExtentState next(ExtentRecord::Use use, std::uint32_t owner = 0, std::uint64_t value = 0) const {
    return {Use::make(use) | Owner::make(owner) | Value::make(value) | Generation::make(generation() + 1)};
  }
};

static_assert(ExtentState::Generation::kEnd == 64);

}  // namespace shoal
