// The calls of a thread, as a signal handler on it finds them.
#pragma once

#include <ucontext.h>
#include <unwind.h>

#include <cstdint>
#include <optional>

namespace shoal {

/// Where a thread was when a signal came.
struct Registers {
  std::uintptr_t instruction = 0, stack = 0;
};

/// `context` is what the handler was given; null, or another kind of CPU: zeros. Async-signal-safe.
inline Registers registers_in(const void* context) noexcept {
  if (!context) return {};
  [[maybe_unused]] const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return {std::uintptr_t(machine.gregs[REG_RIP]), std::uintptr_t(machine.gregs[REG_RSP])};
#elif defined(__aarch64__)
  return {std::uintptr_t(machine.pc), std::uintptr_t(machine.sp)};
#else
  return {};
#endif
}

/// Gives `add` an address of each call of this thread, the innermost first, until it returns false. Frames up to the one
/// at the instruction `from`, which the signal interrupted, are the handler's, and left out; nothing: none is. An address lies
/// in the instruction of the call, not behind it. Async-signal-safe if `add` is, and the unwinder was used before. Faults
/// if unwind tables are wrong: what was added until then is there.
template <class Add>
void walk_frames(std::optional<std::uintptr_t> from, Add add) noexcept {
  struct Walk {
    Add& add;
    std::uintptr_t from;
    bool found;
  } walk{add, from.value_or(0), !from};
  ::_Unwind_Backtrace(
      [](_Unwind_Context* frame, void* data) {
        Walk& walk = *static_cast<Walk*>(data);
        int is_exact = 0;  // a return address may be that of the next function already
        const std::uintptr_t instruction = ::_Unwind_GetIPInfo(frame, &is_exact);
        if (instruction == 0) return _URC_END_OF_STACK;
        const bool more = !walk.found || walk.add(is_exact ? instruction : instruction - 1);
        if (instruction == walk.from) walk.found = true;
        return more ? _URC_NO_REASON : _URC_END_OF_STACK;
      },
      &walk);
}

}  // namespace shoal
