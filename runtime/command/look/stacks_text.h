// The stacks of a session's threads, as text and as JSON.
#pragma once

#include <shoal/internal/ipc/observe/thread_stacks.h>
#include <shoal/internal/runtime/report/named_calls.h>

#include <string>
#include <vector>

namespace shoal::command {

/// Everything that is said about them. A plain value.
struct StacksReport {
  const SessionView& view;
  const std::vector<ProcessStacks>& stacks;
  const NamedCalls& calls;
  const std::vector<std::string>& stuck;  // lines about ranks that others wait for
  double seconds;                         // that asking took
};

/// For people. Threads of a process with the same stack are one entry; what other processes have written is made
/// harmless.
std::string to_text(const StacksReport& report);
/// One object, on one line; its fields are in docs/observing.md.
std::string to_json(const StacksReport& report);

}  // namespace shoal::command
