// The stacks of a session's threads, as text and as JSON.
#pragma once

#include <shoal/internal/ipc/observe/thread_stacks.h>
#include <shoal/internal/runtime/crash/symbols.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace shoal::command {

/// The calls of all stacks, by process and address. Asks the kernel what the processes have mapped, so they are to live
/// still; each place is looked up once, whoever is there.
using NamedCalls = std::map<std::pair<pid_t, std::uint64_t>, StackFrame>;
NamedCalls name_calls(const std::vector<ProcessStacks>& stacks);

/// Everything that is said about them. A plain value.
struct StacksReport {
  const SessionView& view;
  const std::vector<ProcessStacks>& stacks;
  const NamedCalls& calls;
  double seconds;  // that asking took
};

/// For people. Threads of a process with the same stack are one entry; what other processes have written is made
/// harmless.
std::string to_text(const StacksReport& report);
/// One object, on one line; its fields are in docs/observing.md.
std::string to_json(const StacksReport& report);

/// "shoal::futex_wait at ipc/base/futex.cpp:14", or as much of it as is known.
std::string short_text(const StackFrame& frame);

}  // namespace shoal::command
