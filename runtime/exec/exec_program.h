// Starts a program: this one once more, or another.
#pragma once

#include <shoal/internal/runtime/cpu/cpu_set.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace shoal {

/// A process that was just started. `process` is its pidfd.
struct StartedProcess {
  pid_t pid = 0;
  Fd process;
};

/// The file is there, but the kernel does not execute it.
class ExecRefused : public SystemError {
 public:
  using SystemError::SystemError;
};

/// What a new program is given. It inherits nothing else.
struct ProgramStart {
  std::string path = {};                      // of the file to execute
  std::vector<std::string> arguments = {};    // with the program's name first
  std::vector<std::string> environment = {};  // NAME=value
  std::vector<int> descriptors = {};          // those it inherits, under the same numbers
  std::array<int, 3> standard{0, 1, 2};       // what becomes its standard input, output and error
  CpuSet cpus = {};                           // that it may run on; empty: those of this process
  bool own_group = false;          // it leads a process group of its own: signals of a terminal do not reach it
  bool ignores_interrupt = false;  // SIGINT
};

/// Executes it in a child of this process: no signal mask, no handlers; what this process ignores stays ignored, but
/// for SIGTERM, SIGCHLD and SIGPIPE. It dies with this process from its first instruction on. Threads: any. Throws
/// SystemError, and ExecRefused if the process was made but not the program; `what` says in messages what was to be
/// executed.
StartedProcess exec_program(const ProgramStart& start, const std::string& what, const std::string& remedy);

/// This process's environment with NAME=value pairs in place of what it has under these names.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes);

}  // namespace shoal
