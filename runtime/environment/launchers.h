// The launchers whose variables shoal knows.
#pragma once

#include <shoal/internal/runtime/environment/variables.h>
#include <shoal/runtime/environment.h>

#include <string>
#include <vector>

namespace shoal {

/// Does what environment() does, with variables from `lookup`.
Environment read_environment(const Variables::Lookup& lookup);

/// For each launcher: whether its variables are there, and what they say. Launchers that do not tell where rank 0 is
/// leave master_addr empty.
bool has_torch_variables(const Variables::Lookup& lookup);
Environment read_torch_variables(const Variables::Lookup& lookup);
bool has_open_mpi_variables(const Variables::Lookup& lookup);
Environment read_open_mpi_variables(const Variables::Lookup& lookup);
bool has_mvapich_variables(const Variables::Lookup& lookup);
Environment read_mvapich_variables(const Variables::Lookup& lookup);
bool has_pmi_variables(const Variables::Lookup& lookup);
Environment read_pmi_variables(const Variables::Lookup& lookup);
/// Of a step. The batch script, and what it starts without srun, has variables of Slurm's as well: it is one process.
bool has_slurm_variables(const Variables::Lookup& lookup);
Environment read_slurm_variables(const Variables::Lookup& lookup);

/// The first host of Slurm's notation: "node07" of "node[07-09,12],login1". Empty if it cannot be read.
std::string first_host(const std::string& list);
/// The counts of Slurm's notation, one a host: 2, 2, 1 of "2(x2),1". Empty if it cannot be read.
std::vector<int> counts_of_hosts(const std::string& list);

}  // namespace shoal
