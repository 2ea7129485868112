// The stack of a process that may be about to die, written down without help from anyone.
#pragma once

#include <shoal/internal/runtime/crash/record.h>

#include <cstdint>
#include <span>

namespace shoal {

/// Writes the calling thread's stack into the record: first bare addresses, one by one, so that a stack which is broken
/// half-way keeps what was seen; then the image of each. `context` is a signal handler's third argument: the handler's
/// frames are then left out. Async-signal-safe: no allocation, no lock (since glibc 2.35 the unwinder finds images
/// without one), only open, read and close. It may fault if the stack is garbage: a signal handler that calls it must
/// let that kill the process.
void note_stack(CrashRecord& record, const void* context) noexcept;

/// Like the above, for calls that were noted before, as addresses of instructions.
void note_calls(CrashRecord& record, std::span<const std::uintptr_t> calls) noexcept;

}  // namespace shoal
