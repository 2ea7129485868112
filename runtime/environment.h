// The rank of this process, as its launcher says it.
#pragma once

#include <string>

namespace shoal {

/// Which launcher started this process as one of several.
enum class Launcher {
  none,      ///< none: it is a single process
  shoal,     ///< `shoal run`
  torchrun,  ///< torchrun, or whoever sets its variables: RANK, WORLD_SIZE, ...
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
  int rank = 0;                        ///< among all ranks
  int world_size = 1;                  ///< ranks in all
  int local_rank = 0;                  ///< among the ranks of this host
  int local_world_size = 1;            ///< ranks on this host
  int node_rank = 0;        ///< this host among the hosts (torchrun: GROUP_RANK); -1: the launcher does not tell
  int node_count = 1;       ///< hosts; -1: the launcher does not tell
  std::string master_addr;  ///< rank 0's host, for a rendezvous by TCP; empty: the launcher does not tell
  int master_port = 0;      ///< 0: the launcher does not tell
  std::string run_id;       ///< the same for all ranks; as far as the launcher knows, no other run has it
  int restart_count = 0;    ///< how often the launcher has started all ranks again
  int max_restarts = 0;     ///< how often it may start them again

  /// Whether all ranks are on this host.
  bool is_on_one_host() const { return local_world_size == world_size; }
};

/// This process's place, read anew at each call from the variables that `shoal run`, torchrun, MPI's launchers and
/// Slurm set (docs/run.md lists them). Without any of them it is a single process. Processes that this one starts see
/// the same variables: current_process() tells them apart. Throws std::invalid_argument if a variable is missing, is no
/// number or contradicts another one; the text names variable, value and remedy. Threads: any, while none changes the
/// environment.
Environment environment();

/// This process's number among the ranks of its host, for the choice of a device: at::Device(at::kCUDA, local_rank()).
///
/// - A rank that spawn or start_processes has started: its rank.
/// - One that a launcher has started: what environment() says, whose errors come here too.
/// - A process that a rank has started, as a pool's or a loader's worker: that rank's, whose device it works for; likewise
///   what that process starts.
/// - Otherwise a pool's worker: its number among the workers that run at once, from 0, which whoever replaces a dead one
///   has, too; likewise what the worker starts, unless that is a pool's worker itself.
/// - Any other: 0.
int local_rank();

}  // namespace shoal
