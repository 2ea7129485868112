// The calls in the stacks of living processes, by name.
#pragma once

#include <shoal/internal/ipc/observe/thread_stacks.h>
#include <shoal/internal/runtime/crash/symbols.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// By process and address.
using NamedCalls = std::map<std::pair<pid_t, std::uint64_t>, StackFrame>;

/// Names the calls of all stacks. Asks the kernel what the processes have mapped, so they are to live still; each place
/// is looked up once, whoever is there.
NamedCalls name_calls(const std::vector<ProcessStacks>& stacks);

/// "shoal::futex_wait at ipc/base/futex.cpp:14", or as much of it as is known.
std::string short_text(const StackFrame& frame);

/// Where in the program's own code a thread is: its innermost call that lies neither in a system's library nor in shoal
/// or libtorch; otherwise the innermost one. "`evaluate()` at train.cpp:41", or why that is not known.
std::string place_in_program(pid_t process, const ThreadStack& thread, const NamedCalls& calls);

}  // namespace shoal
