// How one process asks a thread of another one for its stack: a signal with a number.
#pragma once

#include <shoal/internal/ipc/base/bit_field.h>
#include <signal.h>

#include <cstdint>
#include <optional>

namespace shoal {

/// SIGURG: a process that does not handle it ignores it. So nobody dies of a question that comes too late, after an
/// exec or to a pid that is another process's by now. Debuggers pass it on, and hardly a program uses it; one that does
/// tells its own from questions by what is with them.
inline constexpr int kStackSignal = SIGURG;

/// What comes with the signal, sent by rt_tgsigqueueinfo(2) with SI_QUEUE: where to write the answer, and the question's
/// number.
struct StackRequest {
  using Place = BitField<0, 8>;
  using Mark = BitField<Place::kEnd, 24>;
  using Number = BitField<Mark::kEnd, 32>;
  static constexpr std::uint64_t kMark = 0x6b7473;  // "stk"
  /// Numbers have 31 bits: StackRecord::state needs one more.
  static constexpr std::uint32_t kNumberMask = 0x7fffffff;

  std::uint32_t place;
  std::uint32_t number;

  sigval value() const {
    sigval value{};
    value.sival_ptr = reinterpret_cast<void*>(Place::make(place) | Mark::make(kMark) | Number::make(number));
    return value;
  }
  static std::optional<StackRequest> of(const siginfo_t& info) {
    const auto word = std::uint64_t(reinterpret_cast<std::uintptr_t>(info.si_value.sival_ptr));
    if (info.si_code != SI_QUEUE || Mark::of(word) != kMark) return std::nullopt;
    return StackRequest{std::uint32_t(Place::of(word)), std::uint32_t(Number::of(word)) & kNumberMask};
  }
};

static_assert(sizeof(void*) == 8);

}  // namespace shoal
