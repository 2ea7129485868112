// Variables of MPI's launchers: Open MPI's, MVAPICH2's, and PMI's, which the others set.
#include <fmt/format.h>
#include <shoal/internal/runtime/environment/launchers.h>

namespace shoal {
namespace {

/// MPI's launchers do not number the hosts. If all have as many ranks as this one and are filled one after the
/// other, which is their default, the number follows; else it is not known.
void number_hosts(Environment& result) {
  const bool whole = result.world_size % result.local_world_size == 0;
  const bool filled = result.rank % result.local_world_size == result.local_rank;
  result.node_count = whole && filled ? result.world_size / result.local_world_size : -1;
  result.node_rank = result.node_count > 0 ? result.rank / result.local_world_size : -1;
}

/// Known if the user says it (mpirun -x MASTER_ADDR=...), or all are here.
void find_master(const Variables& variables, Environment& result) {
  result.master_addr = variables.text_or("MASTER_ADDR", result.is_on_one_host() ? "127.0.0.1" : "");
  result.master_port = variables.number_or("MASTER_PORT", 0, 65535, 0);
}

void check_local(const Variables& variables, const char* name, const Environment& result, const char* world_name) {
  if (result.local_world_size > result.world_size)
    variables.refuse(name, fmt::format("it cannot be more than {}={}", world_name, result.world_size));
}

}  // namespace

bool has_open_mpi_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "");
  return variables.has("OMPI_COMM_WORLD_RANK") || variables.has("OMPI_COMM_WORLD_SIZE");
}

Environment read_open_mpi_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "Open MPI's mpirun");
  Environment result;
  result.launcher = Launcher::open_mpi;
  result.world_size = variables.required("OMPI_COMM_WORLD_SIZE", 1, kMostRanks);
  result.rank = variables.required_below("OMPI_COMM_WORLD_RANK", result.world_size, "OMPI_COMM_WORLD_SIZE");
  result.local_world_size = variables.required("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMostRanks);
  result.local_rank =
      variables.required_below("OMPI_COMM_WORLD_LOCAL_RANK", result.local_world_size, "OMPI_COMM_WORLD_LOCAL_SIZE");
  check_local(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", result, "OMPI_COMM_WORLD_SIZE");
  // OMPI_COMM_WORLD_NODE_RANK is no number of a host: it is the rank on the host, other jobs counted.
  number_hosts(result);
  find_master(variables, result);
  result.run_id = variables.text_or("PMIX_NAMESPACE", variables.text_or("OMPI_MCA_ess_base_jobid", ""));
  return result;
}

bool has_mvapich_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "");
  return variables.has("MV2_COMM_WORLD_RANK") || variables.has("MV2_COMM_WORLD_SIZE");
}

Environment read_mvapich_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "MVAPICH2's mpirun_rsh");
  Environment result;
  result.launcher = Launcher::mvapich;
  result.world_size = variables.required("MV2_COMM_WORLD_SIZE", 1, kMostRanks);
  result.rank = variables.required_below("MV2_COMM_WORLD_RANK", result.world_size, "MV2_COMM_WORLD_SIZE");
  result.local_world_size = variables.required("MV2_COMM_WORLD_LOCAL_SIZE", 1, kMostRanks);
  result.local_rank =
      variables.required_below("MV2_COMM_WORLD_LOCAL_RANK", result.local_world_size, "MV2_COMM_WORLD_LOCAL_SIZE");
  check_local(variables, "MV2_COMM_WORLD_LOCAL_SIZE", result, "MV2_COMM_WORLD_SIZE");
  number_hosts(result);
  find_master(variables, result);
  result.run_id = variables.text_or("PMI_JOBID", "");
  return result;
}

bool has_pmi_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "");
  return variables.has("PMI_RANK") && variables.has("PMI_SIZE");
}

Environment read_pmi_variables(const Variables::Lookup& lookup) {
  const Variables variables(lookup, "mpiexec");
  Environment result;
  result.launcher = Launcher::pmi;
  result.world_size = variables.required("PMI_SIZE", 1, kMostRanks);
  result.rank = variables.required_below("PMI_RANK", result.world_size, "PMI_SIZE");
  // PMI itself tells nothing about hosts. Hydra's names (MPICH, Intel MPI), unless there are those of PALS and Flux.
  const bool hydra = variables.has("MPI_LOCALNRANKS") || variables.has("MPI_LOCALRANKID");
  const bool other = !hydra && (variables.has("PMI_LOCAL_RANK") || variables.has("PMI_LOCAL_SIZE"));
  const char* const local_rank = other ? "PMI_LOCAL_RANK" : "MPI_LOCALRANKID";
  const char* const local_size = other ? "PMI_LOCAL_SIZE" : "MPI_LOCALNRANKS";
  if (hydra || other || result.world_size > 1) {
    result.local_world_size = variables.required(local_size, 1, kMostRanks);
    result.local_rank = variables.required_below(local_rank, result.local_world_size, local_size);
  }
  check_local(variables, local_size, result, "PMI_SIZE");
  number_hosts(result);
  find_master(variables, result);
  result.run_id = variables.text_or("PMI_JOBID", variables.text_or("PALS_APID", variables.text_or("FLUX_JOB_ID", "")));
  return result;
}

}  // namespace shoal
