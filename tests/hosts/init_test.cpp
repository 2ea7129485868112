// init_process_group: what is chosen, by whom started, and bad input.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include "tests/hosts/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace shoal::test;

namespace {

std::vector<std::string> thrown(HostRanks& ranks) {
  std::vector<std::string> all;
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    all.push_back(line_after(result.output, "THREW "));
  }
  return all;
}

/// The variables of one rank by another launcher, in place of torchrun's.
void as_launched_by(const std::string& launcher, HostRanks& ranks, int world, int local_world) {
  for (int rank = 0; rank < world; ++rank) {
    const std::string me = std::to_string(rank), local = std::to_string(rank % local_world),
                      all = std::to_string(world), here = std::to_string(local_world);
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                             "TORCHELASTIC_RUN_ID"})
      ranks.set(rank, name, "");
    if (launcher == "Open MPI") {
      ranks.set(rank, "OMPI_COMM_WORLD_RANK", me);
      ranks.set(rank, "OMPI_COMM_WORLD_SIZE", all);
      ranks.set(rank, "OMPI_COMM_WORLD_LOCAL_RANK", local);
      ranks.set(rank, "OMPI_COMM_WORLD_LOCAL_SIZE", here);
    } else if (launcher == "MPICH") {
      ranks.set(rank, "PMI_RANK", me);
      ranks.set(rank, "PMI_SIZE", all);
      ranks.set(rank, "MPI_LOCALRANKID", local);
      ranks.set(rank, "MPI_LOCALNRANKS", here);
    } else {
      ranks.set(rank, "SLURM_PROCID", me);
      ranks.set(rank, "SLURM_STEP_NUM_TASKS", all);
      ranks.set(rank, "SLURM_STEP_NUM_NODES", std::to_string(world / local_world));
      ranks.set(rank, "SLURM_NODEID", std::to_string(rank / local_world));
      ranks.set(rank, "SLURM_LOCALID", local);
      ranks.set(rank, "SLURM_STEP_TASKS_PER_NODE", fmt::format("{}(x{})", local_world, world / local_world));
      ranks.set(rank, "SLURM_STEP_NODELIST", "node[1-2]");
      ranks.set(rank, "SLURM_STEP_ID", "0");
      ranks.set(rank, "SLURM_JOB_ID", "4711");
    }
  }
}

}  // namespace

TEST_CASE("init_process_group: ranks of MPI's launchers and Slurm meet on two hosts") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::string launcher = GENERATE("Open MPI", "MPICH", "Slurm");
  HostRanks ranks(hosts, {2, 2}, "sum");
  as_launched_by(launcher, ranks, 4, 2);
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(launcher << "\n" << result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("of 4 by shm+gloo") && ContainsSubstring("DONE"));
  }
}

TEST_CASE("init_process_group: ranks of an installed mpirun or mpiexec meet on their host, told nothing else") {
  const std::string launcher = GENERATE("/usr/bin/mpirun.openmpi", "/usr/bin/mpiexec.hydra");
  if (::access(launcher.c_str(), X_OK) != 0) {
    WARN("skipped: there is no " << launcher);
    return;
  }
  std::vector<std::string> command{
      "/usr/bin/env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", launcher, "-n", "4"};
  if (launcher.ends_with("openmpi")) command.emplace_back("--oversubscribe");
  command.insert(command.end(), {SHOAL_HOSTS_RANK, "sum"});
  const ProgramResult result = run_program(command);
  INFO(result.output << result.error);
  CHECK(result.code == 0);
  for (int rank = 0; rank < 4; ++rank)
    CHECK_THAT(result.output, ContainsSubstring(fmt::format("MET rank {} of 4 by shm", rank)));
  std::size_t done = 0;
  for (std::size_t at = 0; (at = result.output.find("DONE", at)) != std::string::npos; ++at) ++done;
  CHECK(done == 4);
}

TEST_CASE("init_process_group: ranks of spawn make a group, again and again") {
  const std::string backend = GENERATE("auto", "gloo");
  const ProgramResult result = run_program({"/usr/bin/env", "BACKEND=" + backend, SHOAL_HOSTS_RANK, "spawn"});
  INFO(result.output << result.error);
  CHECK(result.code == 0);
  const std::string by = backend == "auto" ? "shm" : "gloo";
  std::string expected;
  for (int rank = 0; rank < 3; ++rank) expected += fmt::format("rank {} of 3 by {}: 6\n", rank, by);
  CHECK(result.output == expected + expected);
}

TEST_CASE("init_process_group: ranks of shoal run and of torchrun meet on two hosts") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::string launcher = GENERATE("shoal run", "torchrun");
  if (launcher == "torchrun" && ::access(SHOAL_TORCHRUN, X_OK) != 0) {
    WARN("skipped: there is no " SHOAL_TORCHRUN);
    return;
  }
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<RunningProgram>> launchers;
  for (int host = 0; host < 2; ++host) {
    std::vector<std::string> command = hosts.prefix(host);
    command.insert(command.end(), {"env", "XDG_RUNTIME_DIR=" + folder.path()});
    const std::string number = std::to_string(host);
    if (launcher == "shoal run")
      command.insert(command.end(), {kShoal, "run", "--rdzv-endpoint", hosts.address(0) + ":29400"});
    else
      command.insert(command.end(),
                     {SHOAL_TORCHRUN, "--master-addr", hosts.address(0), "--master-port", "29400", "--no-python"});
    command.insert(command.end(),
                   {"--nnodes", "2", "--nproc-per-node", "2", "--node-rank", number, SHOAL_HOSTS_RANK, "sum"});
    launchers.push_back(std::make_unique<RunningProgram>(command));
  }
  for (auto& program : launchers) {
    const ProgramResult result = program->finish();
    INFO(launcher << "\n" << result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("of 4 by shm+gloo") && ContainsSubstring("DONE"));
  }
}

TEST_CASE("init_process_group: one line of the log says what was chosen, and why") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {1, 1}, "sum", {{"SHOAL_LOG", "info"}});
  ranks.start();
  const auto results = ranks.finish();
  CHECK_THAT(results[0].error,
             ContainsSubstring("process group 'world' of 2 ranks: shared memory within a host, Gloo in columns between "
                               "hosts, because 'auto' was asked for and they are on 2 hosts"));
  CHECK_THAT(results[1].error, !ContainsSubstring("process group 'world'"));
}

TEST_CASE("init_process_group: Gloo alone connects all ranks of several hosts, and those of one") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 1}, std::vector<int>{3});
  const std::string backend = GENERATE("gloo", "cpu:gloo");
  const std::string what = GENERATE("sum", "two_groups");
  HostRanks ranks(hosts, shape, what, {{"BACKEND", backend}});
  if (shape.size() == 1)
    for (int rank = 0; rank < 3; ++rank) ranks.set(rank, "MASTER_PORT", "");  // on one host no port has to be given
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("of 3 by gloo") && ContainsSubstring("DONE"));
  }
}

TEST_CASE("init_process_group: bad backends are refused on every rank, by a line that helps") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const auto [backend, said] = GENERATE(table<std::string, std::string>(
      {{"mpi", "invalid_argument: backend 'mpi': there are auto, shm, gloo and nccl"},
       {"cpu:gloo,cuda:nccl", "invalid_argument: backend 'nccl': libtorch "},
       {"nccl", "invalid_argument: backend 'nccl': libtorch "},
       {"cpu:gloo,cpu:shm", "invalid_argument: backend 'cpu:gloo,cpu:shm' has 'cpu:shm'"},
       {"shm", "invalid_argument: backend 'shm' connects ranks of one host, and they are on 2 hosts"}}));
  HostRanks ranks(hosts, {2, 1}, "sum", {{"BACKEND", backend}});
  ranks.start();
  for (const std::string& text : thrown(ranks)) CHECK_THAT(text, Catch::Matchers::StartsWith(said));
}

TEST_CASE("init_process_group: ranks that disagree about the backend are all told who wants what") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 1}, std::vector<int>{3});
  HostRanks ranks(hosts, shape, "sum");
  ranks.set(2, "BACKEND", "gloo");
  ranks.start();
  for (const std::string& text : thrown(ranks)) {
    CHECK_THAT(text, Catch::Matchers::StartsWith("invalid_argument: rank 0 "));
    CHECK_THAT(text, ContainsSubstring("rank 2 ") && ContainsSubstring("'gloo'") &&
                         ContainsSubstring("all ranks have to ask for the same"));
  }
}

TEST_CASE("init_process_group: a master that cannot be reached is named, with what was wrong") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const auto [address, said] = GENERATE(table<std::string, std::string>({{"10.77.0.1", "Connection refused"},
                                                                         {"10.77.0.99", "10.77.0.99:29511"},
                                                                         {"no-such-host.invalid", "no-such-host"}}));
  // Rank 0 never comes: this is the second host alone.
  HostRanks ranks(hosts, {2, 2}, "sum", {{"MASTER_ADDR", address}, {"MEET_MS", "1500"}});
  for (int rank : {0, 1}) ranks.set(rank, "BACKEND", "none");
  ranks.start();
  const auto all = thrown(ranks);
  for (int rank : {2, 3}) {
    CHECK_THAT(all[std::size_t(rank)],
               Catch::Matchers::StartsWith("TimeoutError: rank 2 could not reach rank 0's host at "));
    CHECK_THAT(all[std::size_t(rank)], ContainsSubstring(said));
  }
}

TEST_CASE("init_process_group: ranks that do not come are named, by all that have come", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  HostRanks ranks(hosts, {1, 1, 2}, "sum", {{"MEET_MS", "2000"}});
  for (int rank : {2, 3}) ranks.set(rank, "BACKEND", "none");
  ranks.start();
  const auto all = thrown(ranks);
  CHECK_THAT(all[0], Catch::Matchers::StartsWith("TimeoutError: 2 of 4 ranks have not come within ") &&
                         Catch::Matchers::EndsWith(" s: 2, 3"));
  CHECK(all[1] == all[0]);  // whoever's time is over first
}

// The time for the meeting is an hour here.
TEST_CASE("init_process_group: a host's first rank that has come and dies while others are awaited ends the meeting",
          "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(4);
  HostRanks ranks(hosts, {1, 2, 1, 1}, "sum", {{"MEET_MS", "3600000"}});
  ranks.set(4, "BACKEND", "none");                   // never comes
  ranks.set(1, "SHOAL_KILL_AT", "hosts.awaits:60");  // some 3 s after it has come
  ranks.start();
  const auto results = ranks.finish();
  CHECK(results[1].code == -SIGKILL);
  for (const std::size_t rank : {0, 2, 3}) {
    INFO("rank " << rank << "\n" << results[rank].output << results[rank].error);
    CHECK(results[rank].code == 0);
    const std::string said = line_after(results[rank].output, "THREW ");
    CHECK_THAT(said, Catch::Matchers::StartsWith("PeerDied: ") && ContainsSubstring("rank 1 "));
    if (rank != 2) CHECK_THAT(said, ContainsSubstring("1 ranks were still to come"));
  }
}

// The time for connections is ten minutes here: whoever waits for a rank that is dead fails by that.
TEST_CASE("init_process_group: a rank that dies while all connect is named on all others at once", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  struct Case {
    std::vector<int> shape;
    int dies;
    const char* where;
    const char* delays = "";
  };
  // The first and the only rank of a host, also before rank 0 looks after it; one beside the first, also where those that
  // have seen it listen no more when others come; rank 0, which keeps the store; one that is in no column. "hosts.written":
  // the others know where Gloo reaches the rank, and open connections. "hosts.gathered": the first rank of the host is about to
  // meet others, and ends because of the one that died.
  const auto [shape, dies, where, delays] = GENERATE(
      Case{{1, 1}, 1, "hosts.connect"}, Case{{2, 2}, 1, "hosts.connect"}, Case{{2, 2}, 2, "hosts.connect"},
      Case{{1, 2}, 2, "hosts.connect"}, Case{{1, 1}, 1, "hosts.connect", "hosts.connect:60000:1"},
      Case{{2, 1}, 0, "hosts.connect"}, Case{{2, 2}, 3, "hosts.connected"}, Case{{2, 2}, 2, "hosts.lines"},
      Case{{1, 1}, 1, "hosts.lines"}, Case{{2, 1}, 0, "hosts.lines"},
      Case{{2, 2}, 1, "hosts.connect", "hosts.lines.connect:300000:1"}, Case{{1, 1}, 1, "hosts.written"},
      Case{{1, 1}, 0, "hosts.written"}, Case{{2, 2}, 1, "hosts.written"}, Case{{2, 2}, 2, "hosts.written"},
      Case{{1, 1, 1}, 1, "hosts.written"}, Case{{2, 2}, 1, "hosts.gathered"}, Case{{2, 2}, 3, "hosts.gathered"},
      Case{{2, 2}, 1, "hosts.met"}, Case{{2, 2}, 2, "hosts.met"}, Case{{2, 1}, 0, "hosts.met"});
  HostRanks ranks(hosts, shape, "sum", {{"MEET_MS", "3600000"}, {"LINK_MS", "600000"}});
  ranks.set(dies, "SHOAL_KILL_AT", where);
  for (int rank = 0; rank < std::accumulate(shape.begin(), shape.end(), 0); ++rank)
    if (rank != dies) ranks.set(rank, "SHOAL_DELAY_AT", delays);
  ranks.start();
  const auto results = ranks.finish();
  CHECK(results[std::size_t(dies)].code == -SIGKILL);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (int(rank) == dies) continue;
    INFO(where << ", rank " << rank << "\n" << results[rank].output << results[rank].error);
    CHECK(results[rank].code == 0);
    CHECK_THAT(line_after(results[rank].output, "THREW "),
               Catch::Matchers::StartsWith("PeerDied: ") && ContainsSubstring(fmt::format(": rank {} (host ", dies)) &&
                   ContainsSubstring(" died"));
  }
}

TEST_CASE("init_process_group: a rank 0 that is stopped keeps nobody for longer than the time-out", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {1, 2}, "sum", {{"MEET_MS", "4000"}});
  ranks.start();
  for (const int late : {1, 2}) ranks.rank(late).signal(SIGSTOP);
  // Rank 0 listens: /proc has the ports of its name space, in hexadecimal.
  const std::string ports = fmt::format("/proc/{}/net/", ranks.pid(0));
  const auto listens = [&](const char* file) {
    std::ifstream lines(ports + file);
    for (std::string line; std::getline(lines, line);)
      if (line.find(":7347 ") != std::string::npos && line.find(" 0A ") != std::string::npos) return true;
    return false;
  };
  while (!listens("tcp") && !listens("tcp6")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ranks.rank(0).signal(SIGSTOP);
  for (const int late : {1, 2}) ranks.rank(late).signal(SIGCONT);
  for (const int rank : {1, 2}) {
    const ProgramResult result = ranks.rank(rank).finish();
    INFO("rank " << rank << "\n" << result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(line_after(result.output, "THREW "), Catch::Matchers::StartsWith("TimeoutError: "));
  }
  ranks.rank(0).signal(SIGKILL);
}

TEST_CASE("init_process_group: a port that is in use is named on every rank") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  // The other program is a store of another run: what it says is understood, and it is not this run's.
  HostRanks others(hosts, {1, 1}, "hold", {{"TORCHELASTIC_RUN_ID", "another"}});
  others.start();
  others.wait_until_ready(2);
  HostRanks ranks(hosts, {2, 1}, "sum", {{"MEET_MS", "5000"}});
  ranks.start();
  const auto all = thrown(ranks);
  for (int rank : {0, 1})
    CHECK_THAT(all[std::size_t(rank)],
               ContainsSubstring("Error: rank 0 cannot open port 29511") && ContainsSubstring("MASTER_PORT"));
  CHECK_THAT(all[2], ContainsSubstring("Error: the store at 10.77.0.1:29511 is another run's"));
  for (int rank : {0, 1}) others.rank(rank).signal(SIGKILL);
}

TEST_CASE("init_process_group: without a place to meet, the launcher's user is told what to set") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {1, 1}, "sum");
  as_launched_by("Open MPI", ranks, 2, 1);
  for (int rank : {0, 1}) ranks.set(rank, "MASTER_ADDR", "");
  ranks.start();
  for (const std::string& text : thrown(ranks))
    CHECK_THAT(text, ContainsSubstring("Open MPI does not tell where they meet: set MASTER_ADDR"));
}
