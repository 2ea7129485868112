// Starts this program once more.
#pragma once

#include <shoal/internal/runtime/exec/exec_program.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// Executes the program of this process anew (also if its file was replaced meanwhile) with `argument` as
/// its only argument, by exec_program(). The child inherits standard input, output and error and `descriptors`;
/// the environment with `changes`; it ignores SIGINT, since Ctrl-C reaches it
/// beside its parent and what it means for the child is the parent's to say.
/// Runs on `cpus` if that is not empty. Threads: any. Throws SystemError, and Error if the session of this
/// process was made before shoal::init.
StartedProcess exec_self(const std::string& argument, const std::vector<int>& descriptors,
                         const std::vector<std::pair<std::string, std::string>>& changes = {}, const CpuSet& cpus = {});

}  // namespace shoal
