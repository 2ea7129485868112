#include <shoal/runtime/environment.h>

#include <shoal/internal/runtime/environment/launchers.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace shoal {
namespace {

using Set = std::map<std::string, std::string>;

Environment read(const Set& set) {
  return read_environment([&](const char* name) -> const char* {
    auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

/// The set with changes; an empty value takes the variable away.
Set with(Set set, const Set& changes) {
  for (const auto& [name, value] : changes) set[name] = value;
  return set;
}

std::string refusal(const Set& set) {
  try {
    read(set);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

/// Where a process is: among all, on its host, and its host among the hosts.
struct Place {
  int rank, world_size, local_rank, local_world_size, node_rank, node_count;
};

void check_place(const Environment& seen, const Place& wanted) {
  CHECK(seen.rank == wanted.rank);
  CHECK(seen.world_size == wanted.world_size);
  CHECK(seen.local_rank == wanted.local_rank);
  CHECK(seen.local_world_size == wanted.local_world_size);
  CHECK(seen.node_rank == wanted.node_rank);
  CHECK(seen.node_count == wanted.node_count);
}

// As torchrun 2.13 sets them for the third process of the second host of two with two each.
const Set kTorchrun{{"LOCAL_RANK", "0"},
                    {"RANK", "2"},
                    {"GROUP_RANK", "1"},
                    {"ROLE_RANK", "2"},
                    {"ROLE_NAME", "default"},
                    {"LOCAL_WORLD_SIZE", "2"},
                    {"WORLD_SIZE", "4"},
                    {"GROUP_WORLD_SIZE", "2"},
                    {"ROLE_WORLD_SIZE", "4"},
                    {"MASTER_ADDR", "node01"},
                    {"MASTER_PORT", "29400"},
                    {"TORCHELASTIC_RESTART_COUNT", "1"},
                    {"TORCHELASTIC_MAX_RESTARTS", "3"},
                    {"TORCHELASTIC_RUN_ID", "job7"},
                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Set kOpenMpi{{"OMPI_COMM_WORLD_RANK", "5"},
                   {"OMPI_COMM_WORLD_SIZE", "8"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                   {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                   {"OMPI_UNIVERSE_SIZE", "8"},
                   {"PMIX_NAMESPACE", "prterun-login-4711@1"},
                   {"PMIX_RANK", "5"}};
const Set kPmi{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Set kSlurm{{"SLURM_PROCID", "4"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_NTASKS", "5"},
                 {"SLURM_NNODES", "3"},
                 {"SLURM_NODEID", "2"},
                 {"SLURM_JOB_ID", "1234567"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "5"},
                 {"SLURM_STEP_NUM_NODES", "3"},
                 {"SLURM_STEP_TASKS_PER_NODE", "1,2(x2)"},
                 {"SLURM_STEP_NODELIST", "gpu[07-08,11]"}};

TEST_CASE("environment: without any variable it is one process") {
  const Environment seen = read({{"PATH", "/bin"}, {"HOSTNAME", "here"}});
  CHECK(seen.launcher == Launcher::none);
  check_place(seen,
              {.rank = 0, .world_size = 1, .local_rank = 0, .local_world_size = 1, .node_rank = 0, .node_count = 1});
  CHECK(seen.master_addr.empty());
  CHECK(seen.is_on_one_host());
}

TEST_CASE("environment: torchrun's variables") {
  const Environment seen = read(kTorchrun);
  CHECK(seen.launcher == Launcher::torchrun);
  check_place(seen,
              {.rank = 2, .world_size = 4, .local_rank = 0, .local_world_size = 2, .node_rank = 1, .node_count = 2});
  CHECK(seen.master_addr == "node01");
  CHECK(seen.master_port == 29400);
  CHECK(seen.run_id == "job7");
  CHECK(seen.restart_count == 1);
  CHECK(seen.max_restarts == 3);
  CHECK_FALSE(seen.is_on_one_host());
  CHECK(read(with(kTorchrun, {{"SHOAL_RUN", "4af1"}})).launcher == Launcher::shoal);
}

TEST_CASE("environment: RANK and WORLD_SIZE alone, set by hand, are ranks of one host") {
  const Environment seen = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
  CHECK(seen.local_rank == 1);
  CHECK(seen.local_world_size == 2);
  CHECK(seen.node_rank == 0);
  CHECK(seen.node_count == 1);
  // With one process a host, LOCAL_RANK=0 is what people add.
  const Environment hosts = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "far"}, {"LOCAL_RANK", "0"}});
  CHECK(hosts.local_rank == 0);
  CHECK(hosts.local_world_size == 1);
  CHECK(hosts.node_rank == -1);
  CHECK(hosts.node_count == -1);
}

TEST_CASE("environment: Open MPI's variables; hosts are numbered where all have the same and are filled in turn") {
  const Environment seen = read(kOpenMpi);
  CHECK(seen.launcher == Launcher::open_mpi);
  check_place(seen,
              {.rank = 5, .world_size = 8, .local_rank = 1, .local_world_size = 4, .node_rank = 1, .node_count = 2});
  CHECK(seen.run_id == "prterun-login-4711@1");
  CHECK(seen.master_addr.empty());
  // --map-by node: rank 5 is the third on its host.
  const Environment spread = read(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}));
  CHECK(spread.node_rank == -1);
  CHECK(spread.node_count == -1);
  CHECK(read(with(kOpenMpi, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}})).master_port == 5);
  CHECK(read(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}})).master_addr == "127.0.0.1");
}

TEST_CASE("environment: PMI's variables, as mpiexec of MPICH and Intel MPI sets them") {
  const Environment seen = read(kPmi);
  CHECK(seen.launcher == Launcher::pmi);
  check_place(seen,
              {.rank = 3, .world_size = 4, .local_rank = 1, .local_world_size = 2, .node_rank = 1, .node_count = 2});
}

TEST_CASE("environment: PMI's variables with the names of HPE's PALS and of Flux for the place on the host") {
  const Set pals{{"PMI_RANK", "3"},       {"PMI_SIZE", "4"},    {"PMI_LOCAL_RANK", "1"},
                 {"PMI_LOCAL_SIZE", "2"}, {"PALS_APID", "8c1"}, {"PMI_UNIVERSE_SIZE", "4"}};
  const Environment seen = read(pals);
  CHECK(seen.launcher == Launcher::pmi);
  check_place(seen,
              {.rank = 3, .world_size = 4, .local_rank = 1, .local_world_size = 2, .node_rank = 1, .node_count = 2});
  CHECK(seen.run_id == "8c1");
  CHECK(read(with(pals, {{"PALS_APID", ""}, {"FLUX_JOB_ID", "f2Y"}})).run_id == "f2Y");
  CHECK_THAT(refusal(with(pals, {{"PMI_LOCAL_SIZE", ""}})), ContainsSubstring("PMI_LOCAL_SIZE is not set"));
  CHECK_THAT(refusal(with(pals, {{"PMI_LOCAL_RANK", "2"}})), ContainsSubstring("PMI_LOCAL_RANK=2"));
  // Where both are there, those that were read before this.
  Set both = pals;
  both.insert(kPmi.begin(), kPmi.end());
  CHECK(read(with(both, {{"PMI_LOCAL_SIZE", "1"}, {"PMI_LOCAL_RANK", "0"}})).local_world_size == 2);
}

TEST_CASE("environment: MVAPICH2's variables") {
  const Set set{{"MV2_COMM_WORLD_RANK", "5"},
                {"MV2_COMM_WORLD_SIZE", "8"},
                {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                {"MV2_COMM_WORLD_LOCAL_SIZE", "4"}};
  const Environment seen = read(set);
  CHECK(seen.launcher == Launcher::mvapich);
  check_place(seen,
              {.rank = 5, .world_size = 8, .local_rank = 1, .local_world_size = 4, .node_rank = 1, .node_count = 2});
  CHECK_THAT(refusal(with(set, {{"MV2_COMM_WORLD_LOCAL_SIZE", ""}})), ContainsSubstring("LOCAL_SIZE is not set"));
  CHECK_THAT(refusal(with(set, {{"MV2_COMM_WORLD_SIZE", ""}})), ContainsSubstring("MV2_COMM_WORLD_SIZE is not set"));
  CHECK(read(with(set, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})).launcher == Launcher::torchrun);
}

TEST_CASE("environment: a rank of PMIx alone is not taken for one process: how many there are is not said") {
  const std::string said = refusal({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "job@1"}});
  CHECK_THAT(said, ContainsSubstring("PMIX_RANK=1 in the environment") && ContainsSubstring("set RANK, WORLD_SIZE"));
  // Beside a launcher's that does say, it is what that speaks.
  CHECK(read(with(kSlurm, {{"PMIX_RANK", "4"}})).launcher == Launcher::slurm);
  CHECK(read(with(kTorchrun, {{"PMIX_RANK", "4"}})).launcher == Launcher::torchrun);
}

TEST_CASE("environment: a Slurm step's variables") {
  const Environment seen = read(kSlurm);
  CHECK(seen.launcher == Launcher::slurm);
  check_place(seen,
              {.rank = 4, .world_size = 5, .local_rank = 1, .local_world_size = 2, .node_rank = 2, .node_count = 3});
  CHECK(seen.run_id == "1234567.0");
  CHECK(seen.master_addr == "gpu07");
  CHECK(seen.master_port == 15000 + 4567);
  CHECK(read(with(kSlurm, {{"MASTER_ADDR", "other"}, {"MASTER_PORT", "77"}})).master_addr == "other");
}

TEST_CASE("environment: a Slurm batch script is one process, whatever the job asked for") {
  // sbatch: a rank of its own and the job's tasks, but no step.
  CHECK(read({{"SLURM_PROCID", "0"},
              {"SLURM_LOCALID", "0"},
              {"SLURM_NODEID", "0"},
              {"SLURM_NTASKS", "16"},
              {"SLURM_NNODES", "2"},
              {"SLURM_JOB_ID", "9"},
              {"SLURM_TASKS_PER_NODE", "8(x2)"}})
            .launcher == Launcher::none);
  // What Slurm numbers its pseudo steps with: the batch script, an interactive shell.
  for (const char* step : {"4294967291", "4294967290", "batch"})
    CHECK(read(with(kSlurm, {{"SLURM_STEP_ID", step}})).launcher == Launcher::none);
}

TEST_CASE("environment: of launchers that started each other, the innermost counts") {
  Set set = kSlurm;
  set.insert(kOpenMpi.begin(), kOpenMpi.end());
  CHECK(read(set).launcher == Launcher::open_mpi);
  set.insert(kTorchrun.begin(), kTorchrun.end());
  CHECK(read(set).launcher == Launcher::torchrun);
  // mpiexec whose helper is a step of its own
  Set helper = kSlurm;
  helper.insert(kPmi.begin(), kPmi.end());
  CHECK(read(helper).launcher == Launcher::pmi);
  // srun --mpi=pmi2: the same ranks twice
  CHECK(read(with(kSlurm, {{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}})).launcher == Launcher::slurm);
  // half of torch's variables do not hide mpirun's
  CHECK(read(with(kOpenMpi, {{"WORLD_SIZE", "8"}})).launcher == Launcher::open_mpi);
}

TEST_CASE("environment: what is malformed, missing or contradictory is named with its value and a remedy") {
  struct Case {
    Set set;
    const char* says;
  };
  const std::vector<Case> cases{
      {{{"RANK", "0"}}, "WORLD_SIZE is not set"},
      {{{"WORLD_SIZE", "2"}}, "RANK is not set"},
      {with(kTorchrun, {{"RANK", "two"}}), "RANK=two in the environment: a whole number from 0"},
      {with(kTorchrun, {{"RANK", "4"}}), "RANK=4 in the environment: it has to be less than WORLD_SIZE=4"},
      {with(kTorchrun, {{"WORLD_SIZE", "-1"}}), "WORLD_SIZE=-1 in the environment"},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE=99999999999999999999"},
      {with(kTorchrun, {{"LOCAL_RANK", "2"}}), "LOCAL_RANK=2 in the environment: it has to be less than LOCAL_WORLD"},
      {with(kTorchrun, {{"LOCAL_RANK", ""}}), "LOCAL_RANK is not set"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}}), "LOCAL_WORLD_SIZE=5 in the environment: it cannot be more than"},
      {with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "1"}}), "LOCAL_RANK=1 in the environment: it cannot be more"},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT=65536"},
      {with(kTorchrun, {{"GROUP_RANK", "2"}}), "GROUP_RANK=2 in the environment: it has to be less than GROUP_WORLD"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", ""}}), "OMPI_COMM_WORLD_LOCAL_SIZE is not set"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "8"}}), "OMPI_COMM_WORLD_RANK=8"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "9"}}), "OMPI_COMM_WORLD_LOCAL_SIZE=9"},
      {with(kPmi, {{"MPI_LOCALNRANKS", ""}}), "MPI_LOCALNRANKS is not set"},
      {with(kPmi, {{"PMI_SIZE", "0"}}), "PMI_SIZE=0"},
      {with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}}), "SLURM_STEP_TASKS_PER_NODE=2(x2)"},
      {with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "many"}}), "SLURM_STEP_TASKS_PER_NODE=many"},
      {with(kSlurm, {{"SLURM_LOCALID", "2"}}), "SLURM_LOCALID=2"},
      {with(kSlurm, {{"SLURM_NODEID", ""}}), "SLURM_NODEID is not set"},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "rack[1-2]node[1-4]"}}), "SLURM_STEP_NODELIST=rack[1-2]node[1-4]"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.says);
    const std::string said = refusal(one.set);
    CHECK_THAT(said, ContainsSubstring(one.says));
    CHECK_THAT(said, ContainsSubstring("unset it"));
  }
}

TEST_CASE("environment: Slurm's notations of hosts and counts") {
  CHECK(first_host("one") == "one");
  CHECK(first_host("one,two") == "one");
  CHECK(first_host("node[007-100]") == "node007");
  CHECK(first_host("node[3,5-7],other9") == "node3");
  CHECK(first_host("node[3-4]-ib,other9") == "node3-ib");
  CHECK(first_host("node[3-4") == "");
  CHECK(first_host("node[]") == "");
  CHECK(counts_of_hosts("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  CHECK(counts_of_hosts("4") == std::vector<int>{4});
  CHECK(counts_of_hosts("2(x3,1").empty());
  CHECK(counts_of_hosts("2(x0)").empty());
  CHECK(counts_of_hosts("2(x99999999999)").empty());
  CHECK(counts_of_hosts("").empty());
}

TEST_CASE("environment: is read from this process's variables, anew at each call") {
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "3", 1);
  CHECK(environment().rank == 1);
  ::setenv("RANK", "2", 1);
  CHECK(environment().rank == 2);
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
  CHECK(environment().launcher == Launcher::none);
}

}  // namespace
}  // namespace shoal
