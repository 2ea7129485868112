#include <shoal/internal/runtime/exec/exec_self.h>

#include <shoal/internal/runtime/exec/early_session.h>
#include <shoal/internal/runtime/os/process_title.h>

namespace shoal {

StartedProcess exec_self(const std::string& argument, const std::vector<int>& descriptors,
                         const std::vector<std::pair<std::string, std::string>>& changes, const CpuSet& cpus) {
  refuse_early_session();
  return exec_program({.path = "/proc/self/exe",
                       .arguments = {program_name(), argument},
                       .environment = environment_with(changes),
                       .descriptors = descriptors,
                       .cpus = cpus,
                       .ignores_interrupt = true},
                      "/proc/self/exe, this program, once more", "is /proc mounted?");
}

}  // namespace shoal
