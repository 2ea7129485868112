// Which rank this process is, as whoever launched it says.
#pragma once

#include <string>

namespace shoal {

/// Who started this process as one of several.
enum class Launcher {
  none,      ///< nobody: it is one process
  shoal,     ///< `shoal run`
  torchrun,  ///< or anyone who sets its variables: RANK, WORLD_SIZE, ...
  open_mpi,  ///< mpirun of Open MPI
  mvapich,   ///< mpirun_rsh of MVAPICH2
  pmi,       ///< mpiexec of MPICH, Intel MPI, HPE's PALS and others, and Flux
  slurm,     ///< a step (srun), not the batch script itself
};

/// The launcher's name as people write it: "torchrun", "Slurm". Static text.
const char* launcher_name(Launcher launcher);

/// A process's place among those that were launched with it.
struct Environment {
  Launcher launcher = Launcher::none;  ///< who has started this process
  int rank = 0;                        ///< among all
  int world_size = 1;                  ///< all
  int local_rank = 0;                  ///< among those on this host
  int local_world_size = 1;            ///< those on this host
  int node_rank = 0;        ///< this host among the hosts (torchrun: GROUP_RANK); -1: the launcher does not tell
  int node_count = 1;       ///< hosts; -1: the launcher does not tell
  std::string master_addr;  ///< of rank 0's host, for a rendezvous by TCP; empty: the launcher does not tell
  int master_port = 0;      ///< 0: the launcher does not tell
  std::string run_id;       ///< the same for all ranks, and no other run's at that time as far as the launcher knows
  int restart_count = 0;    ///< how often all ranks have been started again
  int max_restarts = 0;     ///< how often all ranks may be started again

  /// All ranks are on this host.
  bool is_on_one_host() const { return local_world_size == world_size; }
};

/// Of this process, read anew at each call from the variables that `shoal run`, torchrun, MPI's launchers and
/// Slurm set (docs/run.md lists them); one process where there are none of them. Processes that this one starts see the
/// same: which of them they are is told by current_process(). Throws std::invalid_argument, naming variable, value and
/// remedy, where one is missing, is no number or contradicts another. Threads: any, while none changes the environment.
Environment environment();

/// This process's number among the ranks of its host, however they were started: by spawn or start_processes its rank
/// among those, else what environment() says; 0 for a single process. In a worker of a pool it is the worker's number.
/// For the choice of a device: at::Device(at::kCUDA, local_rank()).
int local_rank();

}  // namespace shoal
