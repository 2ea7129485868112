#include <shoal/internal/ipc/process/made_at.h>

#include <unwind.h>

#include <array>
#include <cstddef>

namespace shoal {
namespace {

// Written once, before anyone reads it: with the session's mutex held.
std::array<std::uintptr_t, 24> calls;
std::size_t count = 0;

_Unwind_Reason_Code note(_Unwind_Context* frame, void*) {
  int is_exact = 0;  // a return address may be that of the next function already
  const std::uintptr_t instruction = ::_Unwind_GetIPInfo(frame, &is_exact);
  if (instruction == 0 || count == calls.size()) return _URC_END_OF_STACK;
  calls[count++] = is_exact ? instruction : instruction - 1;
  return _URC_NO_REASON;
}

}  // namespace

std::span<const std::uintptr_t> session_made_at() noexcept { return {calls.data(), count}; }

void note_session_made() noexcept {
  count = 0;
  ::_Unwind_Backtrace(&note, nullptr);
}

}  // namespace shoal
