// Ranks on several hosts: tensors and values from rank to rank.
#include <signal.h>

#include "tests/hosts/host_ranks.h"
#include "tests/support/catch.h"

using namespace shoal;
using namespace shoal::test;

TEST_CASE("hosts: messages between all ranks, within a host and between hosts") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{1, 2}, std::vector<int>{3});
  HostRanks ranks(hosts, shape, "messages");
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
  }
}

TEST_CASE("hosts: what is under way goes on while its rank waits for another host") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::string progress = GENERATE("in_call", "thread");
  HostRanks ranks(hosts, {2, 2}, "messages_while_others_wait", {{"PROGRESS", progress}});
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
  }
}

TEST_CASE("hosts: what a rank sent before it left arrives, and who waits for more is told") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{1, 1});
  HostRanks ranks(hosts, shape, "leave");
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
  }
}

TEST_CASE("hosts: who waits for a message of a rank that is killed gets PeerDied, on every host") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {2, 2}, "wait_for_the_last");
  // Rank 0 learns it from rank 3's connection, and leaves while rank 1 is about to tell why: for 20 ms from some 1 ms on.
  ranks.set(0, "SHOAL_DELAY_AT", "hosts.leave:9000:1");
  ranks.set(1, "SHOAL_DELAY_AT", "hosts.tell:60000:1");
  ranks.start();
  ranks.wait_until_ready(4);
  ranks.rank(3).signal(SIGKILL);
  const auto results = ranks.finish();
  for (int rank : {0, 1, 2}) {
    const ProgramResult& result = results[std::size_t(rank)];
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    const std::string said = line_after(result.output, "THREW PeerDied: ");
    CHECK_THAT(said, ContainsSubstring("rank 3 (host ") || ContainsSubstring("rank 3 (process "));
  }
}
