// The stack of a process that may be about to die, written down without help from anyone.
#pragma once

#include <shoal/internal/runtime/crash/record.h>

#include <cstdint>
#include <span>

namespace shoal {

/// Writes the calling thread's stack into the record: first bare addresses, one by one, so that a stack which is
/// broken half-way keeps what was seen; then the image of each. `context` is a signal handler's third argument: the
/// frames of the handler are left out then. Async-signal-safe: no allocation, no lock (the unwinder finds images
/// without one since glibc 2.35), only open, read and close. May fault where the stack is garbage: a signal handler
/// that calls it must let that kill the process.
void note_stack(CrashRecord& record, const void* context) noexcept;

/// The same for calls that were noted before, as addresses of instructions.
void note_calls(CrashRecord& record, std::span<const std::uintptr_t> calls) noexcept;

}  // namespace shoal
