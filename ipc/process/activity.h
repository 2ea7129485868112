// A process's record of what it says about itself to those that look on, made anew with each process.
#pragma once

#include <shoal/internal/ipc/base/process_tag.h>

#include <cstdint>

namespace shoal {

struct ActivityRecord;

namespace activity {
/// Makes the record of a slot that this process has just taken.
void begin(ActivityRecord& record, ProcessTag owner) noexcept;
/// CLOCK_MONOTONIC in nanoseconds: one time line for all processes of the machine.
std::uint64_t now() noexcept;
/// Like gettid().
std::uint32_t thread() noexcept;
}  // namespace activity

}  // namespace shoal
