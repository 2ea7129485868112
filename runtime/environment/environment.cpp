// Which launcher started this process, and what it says.
#include <shoal/internal/runtime/environment/launchers.h>
#include <shoal/internal/runtime/environment/local_rank.h>
#include <shoal/runtime/current_process.h>

#include <algorithm>
#include <cstdlib>

namespace shoal {
namespace {

detail::WorksFor works_for;

/// srun --mpi=pmi2 sets PMI's variables beside Slurm's, for the same ranks; Slurm's say more. An mpiexec that starts
/// its helpers by srun leaves those of the helper instead.
bool same_ranks_by_slurm(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "");
  return has_slurm_variables(lookup) && variables.text("PMI_RANK") == variables.text("SLURM_PROCID") &&
         variables.text("PMI_SIZE") ==
             variables.text(variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
}

}  // namespace

const char* launcher_name(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "none";
    case Launcher::shoal:
      return "shoal run";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "Open MPI";
    case Launcher::mvapich:
      return "MVAPICH2";
    case Launcher::pmi:
      return "PMI";
    case Launcher::slurm:
      return "Slurm";
  }
  return "none";
}

Environment read_environment(const Variables::Lookup& lookup) {
  // The innermost first: torchrun is started by mpirun or srun, mpirun by srun, and not the other way round.
  const Variables variables(lookup, "");
  const bool others = has_open_mpi_variables(lookup) || has_mvapich_variables(lookup) || has_pmi_variables(lookup) ||
                      has_slurm_variables(lookup);
  const bool complete = variables.has("RANK") && variables.has("WORLD_SIZE");
  if (complete || (!others && has_torch_variables(lookup))) return read_torch_variables(lookup);
  if (has_open_mpi_variables(lookup)) return read_open_mpi_variables(lookup);
  if (has_mvapich_variables(lookup)) return read_mvapich_variables(lookup);
  if (has_pmi_variables(lookup) && !same_ranks_by_slurm(lookup)) return read_pmi_variables(lookup);
  if (has_slurm_variables(lookup)) return read_slurm_variables(lookup);
  // PMIx tells the number of ranks to its library alone. To be taken for one process would be wrong without a word.
  if (variables.has("PMIX_RANK"))
    Variables(lookup, "a launcher that speaks PMIx")
        .refuse("PMIX_RANK",
                "how many ranks there are is not said: set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE too");
  return {};
}

detail::WorksFor detail::children_work_for() {
  WorksFor whom = works_for;
  if (const int started = current_process().rank; started >= 0) whom = {started, -1};
  return whom;
}
void detail::set_works_for(const WorksFor& whom) { works_for = whom; }
void detail::set_worker_number(int number) { works_for.worker_number = number; }

int local_rank() {
  const detail::WorksFor whom = detail::children_work_for();
  if (whom.rank >= 0) return whom.rank;
  const Environment launched = environment();
  if (launched.launcher != Launcher::none) return launched.local_rank;
  return std::max(whom.worker_number, 0);
}

Environment environment() {
  return read_environment([](const char* name) { return std::getenv(name); });
}

}  // namespace shoal
