// What the ranks of several hosts see when one of them, or its host, is gone.
#include <fmt/format.h>
#include <shoal/ipc/fd.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdint>
#include <fstream>
#include <functional>

#include "tests/hosts/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// All but `gone` have thrown `what`, which names that rank, and ended well.
void check_all_but(int gone, const std::vector<ProgramResult>& results, const std::string& what) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (int(rank) == gone) continue;
    INFO("rank " << rank << "\n" << results[rank].output << results[rank].error);
    CHECK(results[rank].code == 0);
    CHECK_THAT(line_after(results[rank].output, "THREW "), Catch::Matchers::StartsWith(what));
    CHECK_THAT(line_after(results[rank].output, "THREW "), ContainsSubstring(fmt::format("rank {} (host ", gone)));
  }
}

/// Kills one rank in its collectives.
void kill_one(const NetworkHosts& hosts, const std::vector<int>& shape, int victim, const std::string& what,
              const HostRanks::Variables& variables = {}, const std::function<void()>& wait = nullptr) {
  HostRanks ranks(hosts, shape, what, variables);
  ranks.start();
  ranks.wait_until_ready(4);
  if (wait) wait();
  ranks.rank(victim).signal(SIGKILL);
  const auto results = ranks.finish();
  INFO("rank " << victim << " killed");
  CHECK(results[std::size_t(victim)].code == -SIGKILL);
  check_all_but(victim, results, "PeerDied: all_reduce: ");
}

}  // namespace

TEST_CASE("hosts: every rank learns of a rank that is killed, from the same text", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{3, 1});
  const int victim = GENERATE(0, 1, 3);
  // A few that differ; SHOAL_TEST_SCALE=2 for all.
  if (test_scale() == 1 && shape[0] == 3 && victim != 1) return;
  kill_one(hosts, shape, victim, "until_it_fails");
}

TEST_CASE("hosts: every rank learns of a rank that is killed while it has much to send", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{3, 1});
  const int victim = GENERATE(0, 1, 3);
  if (test_scale() == 1 && victim != 3) return;
  kill_one(hosts, shape, victim, "large_until_it_fails");
}

// With copies of its sockets in a child no connection would end with the rank, and rank 0's port would stay taken.
TEST_CASE("hosts: a rank that is killed is dead to the others though a child of its lives", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const char* const how = GENERATE("fork", "program");
  const int victim = GENERATE(0, 1);
  const TemporaryFolder folder;
  const std::string written = folder.file("child");
  HostRanks ranks(hosts, {1, 1}, "until_it_fails", {{"CALL_MS", "10000"}});
  ranks.set(victim, "CHILD", how);
  ranks.set(victim, "CHILD_FILE", written);
  ranks.start();
  ranks.wait_until_ready(2);
  wait_for_lines(written, 1);
  pid_t child = 0;
  REQUIRE(std::ifstream(written) >> child);
  ranks.rank(victim).signal(SIGKILL);
  const auto results = ranks.finish();
  INFO(how << ", rank " << victim);
  check_all_but(victim, results, "PeerDied: all_reduce: ");
  CHECK(::kill(child, 0) == 0);
  HostRanks next(hosts, {1, 1}, "sum");
  next.start();
  for (const ProgramResult& result : next.finish()) {
    INFO(result.output << result.error);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
  }
  ::kill(child, SIGKILL);
}

// A slow network: the others have a part of a message when the connection ends. Gloo forgets whoever waits for the rest.
TEST_CASE("hosts: a rank that is killed in the middle of a message leaves nobody waiting", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  hosts.limit(100);
  const int victim = GENERATE(0, 1, 2);
  if (test_scale() == 1 && victim == 1) return;
  // A call takes some 350 ms, and each host has 4 MB to send in it.
  kill_one(hosts, {2, 2}, victim, "large_until_it_fails", {{"READY_ROUND", "1"}}, [&] {
    const std::uint64_t before = hosts.bytes_sent(victim / 2);
    while (hosts.bytes_sent(victim / 2) < before + 500'000) {
    }
  });
}

// The only rank of its host that sees the death begins to tell of it, and dies: the others of its host tell what they see.
TEST_CASE("hosts: a rank that dies while it tells of another one's death leaves nobody waiting", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const auto [shape, victim, teller] = GENERATE(table<std::vector<int>, int, int>({{{3, 1}, 3, 0}, {{1, 3}, 0, 1}}));
  HostRanks ranks(hosts, shape, "until_it_fails");
  ranks.set(teller, "SHOAL_KILL_AT", "hosts.tell");
  ranks.start();
  ranks.wait_until_ready(4);
  ranks.rank(victim).signal(SIGKILL);
  const auto results = ranks.finish();
  CHECK(results[std::size_t(teller)].code == -SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim || rank == teller) continue;
    INFO("rank " << rank << "\n" << results[std::size_t(rank)].output << results[std::size_t(rank)].error);
    CHECK(results[std::size_t(rank)].code == 0);
    CHECK_THAT(line_after(results[std::size_t(rank)].output, "THREW "),
               Catch::Matchers::StartsWith("PeerDied: all_reduce: ") &&
                   ContainsSubstring(fmt::format("rank {} (host ", teller)));
  }
}

TEST_CASE("hosts: a store of the launcher's that is killed is named by every rank", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const bool in_a_collective = GENERATE(true, false);
  std::vector<std::string> command = hosts.prefix(0);
  const TemporaryFolder folder;
  const std::string written = folder.file("written");
  command.insert(command.end(), {SHOAL_HOSTS_STORE, "29511", written});
  RunningProgram store(command);
  wait_for_lines(written, 1);
  // While they meet: the second host never comes.
  HostRanks ranks(hosts, {2, 2}, in_a_collective ? "until_it_fails" : "sum",
                  {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  if (!in_a_collective)
    for (int rank : {2, 3}) ranks.set(rank, "BACKEND", "none");
  ranks.start();
  if (in_a_collective)
    ranks.wait_until_ready(4);
  else
    wait_for_lines(written, 2);
  store.signal(SIGKILL);
  const auto results = ranks.finish();
  for (int rank = 0; rank < (in_a_collective ? 4 : 2); ++rank) {
    INFO("rank " << rank << "\n" << results[std::size_t(rank)].output << results[std::size_t(rank)].error);
    CHECK(results[std::size_t(rank)].code == 0);
    CHECK_THAT(
        line_after(results[std::size_t(rank)].output, "THREW "),
        Catch::Matchers::StartsWith(in_a_collective ? "PeerDied: all_reduce: the store at 10.77.0.1:29511, which "
                                                      "the launcher keeps"
                                                    : "Error: the store at 10.77.0.1:29511, which the launcher "
                                                      "keeps, is gone while the ranks meet"));
  }
}

TEST_CASE("hosts: a rank that dies at a marked point of a collective leaves nobody waiting", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const char* const point = GENERATE("hosts.meet:5", "hosts.finish:5", "hosts.spread:5", "group.signal.before:40",
                                     "group.in_place.before:0", "group.wait:40");
  const int victim = GENERATE(1, 2);
  if (test_scale() == 1 && victim != 1) return;
  HostRanks ranks(hosts, {2, 2}, "large_until_it_fails");
  ranks.set(victim, "SHOAL_KILL_AT", point);
  if (std::string(point).starts_with("group.in_place"))
    for (int rank = 0; rank < 4; ++rank) ranks.set(rank, "SHARED", "1");
  ranks.start();
  const auto results = ranks.finish();
  INFO(point << "\n" << results[std::size_t(victim)].output << results[std::size_t(victim)].error);
  CHECK(results[std::size_t(victim)].code == -SIGKILL);
  check_all_but(victim, results, "PeerDied: all_reduce: ");
}

TEST_CASE("hosts: ranks that wait for a late one learn of another one's death", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  // Rank 5 is late; rank 1 dies, which is in no column with rank 0 or 4.
  HostRanks ranks(hosts, {2, 2, 2}, "late");
  ranks.start();
  ranks.wait_until_ready(6);
  ranks.rank(1).signal(SIGKILL);
  std::vector<ProgramResult> results;
  for (int rank = 0; rank < 5; ++rank) results.push_back(ranks.rank(rank).finish());
  check_all_but(1, results, "PeerDied: all_reduce: ");
  ranks.rank(5).signal(SIGKILL);
}

TEST_CASE("hosts: a host whose link is lost is named within the link's time-out, on all hosts", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const bool silently = GENERATE(false, true);
  HostRanks ranks(hosts, {2, 2}, "late", {{"LINK_MS", "3000"}});
  ranks.start();
  ranks.wait_until_ready(4);
  if (silently)
    hosts.cut_silently(1);
  else
    hosts.set_link(1, false);
  for (int rank = 0; rank < 3; ++rank) {
    const ProgramResult result = ranks.rank(rank).finish();
    INFO("rank " << rank << "\n" << result.output << result.error);
    const std::string said = line_after(result.output, "THREW ");
    CHECK_THAT(said, Catch::Matchers::StartsWith("PeerDied: all_reduce: rank "));
    // Each side names a rank of the other one.
    CHECK_THAT(said, ContainsSubstring("(host " + hosts.address(rank < 2 ? 1 : 0)));
  }
  ranks.rank(3).signal(SIGKILL);
}

TEST_CASE("hosts: a rank that is stopped is named when the call's time is over", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const int victim = GENERATE(0, 1, 2);  // rank 0's store is stopped with it
  HostRanks ranks(hosts, {2, 2}, "until_it_fails", {{"CALL_MS", "2000"}});
  ranks.start();
  ranks.wait_until_ready(4);
  ranks.rank(victim).signal(SIGSTOP);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    const ProgramResult result = ranks.rank(rank).finish();
    INFO("rank " << rank << "\n" << result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(line_after(result.output, "THREW "),
               Catch::Matchers::StartsWith(fmt::format("TimeoutError: all_reduce: rank {} (host ", victim)));
    CHECK_THAT(line_after(result.output, "THREW "), ContainsSubstring(" not come within 2000 ms"));
  }
  ranks.rank(victim).signal(SIGKILL);
}

// The host that waits knows who is late; where that one is its own host says.
TEST_CASE("hosts: a rank that others wait for in vain is shown by its host, with where it is", "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const auto shape = GENERATE(std::vector<int>{1, 1}, std::vector<int>{2, 1}, std::vector<int>{1, 2});
  const char* const progress = GENERATE("in_call", "thread");
  const TemporaryFolder folder;
  HostRanks ranks(hosts, shape, "evaluates",
                  {{"CALL_MS", "1500"}, {"PROGRESS", progress}, {"ENDED_FILE", folder.file("ended")}});
  ranks.start();
  const auto last = std::size_t(shape[0] + shape[1] - 1);
  std::vector<ProgramResult> results;
  for (std::size_t rank = 0; rank < last; ++rank) results.push_back(ranks.rank(int(rank)).finish());
  std::ofstream(folder.file("ended")) << "ended";
  results.push_back(ranks.rank(int(last)).finish());
  std::string shown;  // by the last one's host
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO("rank " << rank << "\n" << results[rank].output << results[rank].error);
    CHECK(results[rank].code == 0);
    if (rank != last)
      CHECK_THAT(line_after(results[rank].output, "THREW "), ContainsSubstring(fmt::format("rank {} (host ", last)) &&
                                                                 ContainsSubstring(" not come within 1500 ms"));
    if (int(rank) >= shape[0]) shown += results[rank].error;
  }
  CHECK_THAT(shown, ContainsSubstring(fmt::format("rank {} (", last)) &&
                        ContainsSubstring(fmt::format("RANK {}", last)) && ContainsSubstring("it is in `") &&
                        ContainsSubstring("evaluate_until_told") && ContainsSubstring("all_reduce"));
}

TEST_CASE("hosts: rank 0 may be done first, and the others with what they have") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  HostRanks ranks(hosts, {1, 2, 1}, "sum");
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
  }
}
