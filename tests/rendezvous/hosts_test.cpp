// Runs of several hosts: several launchers on this machine, which meet on its loopback.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <shoal/internal/runtime/command/job/many_hosts.h>
#include <shoal/internal/runtime/command/job/one_host.h>
#include <shoal/internal/runtime/os/pidfd.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/catch.h"

namespace shoal::test {
namespace {

/// Launchers of one run.
struct Hosts {
  explicit Hosts(std::string nodes) : nodes(std::move(nodes)), port(command::find_free_port()) {}

  std::vector<std::string> command(int ranks, const std::vector<std::string>& more,
                                   const std::vector<std::string>& steps) const {
    std::vector<std::string> options{"--nnodes",           nodes,
                                     "--nproc-per-node",   std::to_string(ranks),
                                     "--rdzv-endpoint",    "127.0.0.1:" + std::to_string(port),
                                     "--rdzv-id",          "test",
                                     "--monitor-interval", "0.02",
                                     "--shutdown-timeout", "10"};
    options.insert(options.end(), more.begin(), more.end());
    return ranks_command(options, steps);
  }

  const std::string nodes;
  const int port;
};

/// Among many lines that may be there already of earlier starts.
void wait_for_line(const std::string& path, const std::string& line, std::size_t times = 1) {
  for (std::size_t lines = 1;; ++lines) {
    const auto all = wait_for_lines(path, lines);
    if (std::size_t(std::count(all.begin(), all.end(), line)) >= times) return;
    lines = all.size();
  }
}

TEST_CASE("hosts: all ranks of two launchers see their place") {
  Hosts hosts("2");
  RunningProgram first(hosts.command(2, {"--node-rank", "0"}, {"env", ""}));
  RunningProgram second(hosts.command(1, {"--node-rank", "1"}, {"env", ""}));
  const ProgramResult one = first.finish(), two = second.finish();
  CAPTURE(one.error, two.error);
  CHECK(one.code == 0);
  CHECK(two.code == 0);
  CHECK_THAT(one.output, ContainsSubstring("[rank0]: rank 0/3 local 0/2 node 0/2 restart 0 run test at shoal run\n"));
  CHECK_THAT(one.output, ContainsSubstring("[rank1]: rank 1/3 local 1/2 node 0/2 restart 0 run test at shoal run\n"));
  CHECK(two.output == "[rank2]: rank 2/3 local 0/1 node 1/2 restart 0 run test at shoal run\n");
}

TEST_CASE("hosts: a rank that fails on one host starts all again on both") {
  TemporaryFolder folder;
  Hosts hosts("2");
  const std::string starts = folder.file("starts");
  const std::vector<std::string> steps{"round-to", starts, "exit-first", "1"};
  RunningProgram first(hosts.command(1, {"--max-restarts", "1"}, steps));
  RunningProgram second(hosts.command(1, {"--max-restarts", "1"}, steps));
  const ProgramResult one = first.finish(), two = second.finish();
  CAPTURE(one.error, two.error);
  CHECK(one.code == 0);
  CHECK(two.code == 0);
  auto lines = lines_of(starts);
  std::sort(lines.begin(), lines.end());
  CHECK(lines == std::vector<std::string>{"0/2 of start 0", "0/2 of start 1", "1/2 of start 0", "1/2 of start 1"});
}

TEST_CASE("hosts: without restarts a failed rank ends both, and both say which it was") {
  Hosts hosts("2");
  RunningProgram first(hosts.command(1, {"--node-rank", "0"}, {"throw", "1", "wait", ""}));
  RunningProgram second(hosts.command(1, {"--node-rank", "1"}, {"throw", "1", "wait", ""}));
  const ProgramResult one = first.finish(), two = second.finish();
  CAPTURE(one.error, two.error);
  CHECK(one.code == 1);
  CHECK(two.code == 1);
  CHECK_THAT(one.error, ContainsSubstring("rank 1 (pid ") && ContainsSubstring("thrown by a rank"));
  CHECK_THAT(two.error, ContainsSubstring("The root cause:\n  rank 1 (pid ") && ContainsSubstring("#0 "));
}

TEST_CASE("hosts: a launcher that is killed ends a run of fixed size") {
  TemporaryFolder folder;
  Hosts hosts("2");
  const std::string starts = folder.file("starts");
  RunningProgram first(hosts.command(1, {"--node-rank", "0"}, {"round-to", starts, "wait", ""}));
  wait_for_lines("/proc/" + std::to_string(first.pid()) + "/status", 1);
  RunningProgram second(hosts.command(1, {"--node-rank", "1"}, {"round-to", starts, "wait", ""}));
  wait_for_lines(starts, 2);
  // Whichever of them has the store: what the other says differs, that it ends does not.
  second.signal(SIGKILL);
  CHECK(second.finish().code == -SIGKILL);
  const ProgramResult one = first.finish();
  CAPTURE(one.error);
  CHECK((one.code == 1 || one.code == 3));
}

TEST_CASE("hosts: an elastic run goes on with those that are left, and with those that come") {
  TemporaryFolder folder;
  Hosts hosts("1:2");
  const std::string starts = folder.file("starts");
  const std::vector<std::string> more{"--rdzv-conf", "last_call_timeout=0.1"};
  RunningProgram first(hosts.command(1, more, {"round-to", starts, "wait", ""}));
  wait_for_line(starts, "0/1 of start 0");  // it has the store
  {
    RunningProgram second(hosts.command(1, more, {"round-to", starts, "wait", ""}));
    wait_for_line(starts, "1/2 of start 0");
    wait_for_line(starts, "0/2 of start 0");
    second.signal(SIGKILL);
    CHECK(second.finish().code == -SIGKILL);
  }
  wait_for_line(starts, "0/1 of start 0", 2);
  first.signal(SIGTERM);
  const ProgramResult one = first.finish();
  CAPTURE(one.error);
  CHECK(one.code == -SIGTERM);
  CHECK_THAT(one.error, ContainsSubstring("a host has joined") && ContainsSubstring("its launcher has died"));
}

TEST_CASE("hosts: Ctrl-C at one launcher ends the others' ranks too") {
  TemporaryFolder folder;
  Hosts hosts("2");
  const std::string starts = folder.file("starts");
  RunningProgram first(hosts.command(1, {}, {"round-to", starts, "wait", ""}));
  RunningProgram second(hosts.command(1, {}, {"round-to", starts, "wait", ""}));
  wait_for_lines(starts, 2);
  first.signal(SIGINT);
  CHECK(first.finish().code == -SIGINT);
  const ProgramResult two = second.finish();
  CAPTURE(two.error);
  CHECK(two.code == 1);
  CHECK_THAT(two.error, ContainsSubstring("a launcher was ended by SIGINT"));
}

TEST_CASE("hosts: a rendezvous that cannot be reached, or is another run's, is one line and a code of its own") {
  SECTION("nobody there") {
    // An address of documentation's: no route, or no answer.
    const ProgramResult result = run_ranks(
        {"--nnodes", "2", "--rdzv-endpoint", "192.0.2.1:29400", "--rdzv-conf", "join_timeout=1"}, {"env", ""});
    CHECK(result.code == 3);
    CHECK_THAT(result.error, ContainsSubstring("the rendezvous at 192.0.2.1:29400 cannot be reached within 1 s"));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
  }
  SECTION("another run's") {
    Hosts hosts("1:2");
    TemporaryFolder folder;
    const std::string ready = folder.file("ready");
    RunningProgram first(hosts.command(1, {"--rdzv-conf", "last_call_timeout=0"}, {"pid-to", ready, "wait", ""}));
    wait_for_lines(ready, 1);
    const ProgramResult result = run_program(hosts.command(1, {"--rdzv-id", "other"}, {"env", ""}));
    CHECK(result.code == 3);
    CHECK_THAT(result.error, ContainsSubstring("is of run 'test', not 'other'"));
  }
  SECTION("nobody comes") {
    Hosts hosts("2");
    const ProgramResult result = run_program(hosts.command(1, {"--rdzv-conf", "join_timeout=0.2"}, {"env", ""}));
    CHECK(result.code == 1);
    CHECK_THAT(result.error, ContainsSubstring("only 1 of at least 2 hosts came within 0.2 s"));
  }
}

TEST_CASE("hosts: what the companion says is read with care") {
  const auto round = command::parse_event("round 3 1 2 4 8 1 2345 node7").round;
  CHECK(round.number == 3);
  CHECK(round.node_rank == 1);
  CHECK(round.node_count == 2);
  CHECK(round.first_rank == 4);
  CHECK(round.world_size == 8);
  CHECK(round.restart_count == 1);
  CHECK(round.master_port == 2345);
  CHECK(round.master_addr == "node7");
  CHECK(command::parse_event("restart because of this").reason == "because of this");
  CHECK_THROWS_WITH(command::parse_event("round 3 1 2"), ContainsSubstring("which is no round"));
  CHECK_THROWS_WITH(command::parse_event("hello"), ContainsSubstring("means nothing"));
}

TEST_CASE("hosts: where they meet is said by --rdzv-endpoint, or as torchrun's older options have it") {
  command::RunOptions options;
  CHECK_THROWS_WITH(command::endpoint_of(options), ContainsSubstring("add --rdzv-endpoint HOST:PORT"));
  options.master_addr = "here";
  CHECK(command::endpoint_of(options) == "here:29500");
  options.endpoint = "there";
  CHECK(command::endpoint_of(options) == "there:29400");
  for (const char* bad : {"there:", "there:0", "there:65536", "there:x", ":1"}) {
    options.endpoint = bad;
    CHECK_THROWS_AS(command::endpoint_of(options), std::invalid_argument);
  }
}

}  // namespace
}  // namespace shoal::test
