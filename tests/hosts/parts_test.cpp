// Ranks on several hosts: groups of some of them, and Work that is under way.
#include <signal.h>

#include "tests/hosts/host_ranks.h"
#include "tests/support/catch.h"

using namespace shoal;
using namespace shoal::test;

namespace {

void check_all(HostRanks& ranks) {
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
  }
}

}  // namespace

TEST_CASE("hosts: parts of a group, by lists and by colors, on several hosts and on one") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{3, 1}, std::vector<int>{4});
  const std::string progress = GENERATE("in_call", "thread");
  HostRanks ranks(hosts, shape, "parts", {{"PROGRESS", progress}});
  check_all(ranks);
}

TEST_CASE("hosts: calls return before they are done where a thread does the collectives") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{1, 2});
  HostRanks ranks(hosts, shape, "under_way", {{"PROGRESS", "thread"}});
  check_all(ranks);
}

TEST_CASE("hosts: a thread that does the collectives trains the model that one process trains") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {2, 1}, "ddp", {{"PROGRESS", "thread"}});
  check_all(ranks);
}

TEST_CASE("hosts: who alone gives what makes no sense is named to the others, and the group goes on") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{1, 2});
  HostRanks ranks(hosts, shape, "refusal");
  ranks.start();
  const auto results = ranks.finish();
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO(results[rank].output << results[rank].error);
    CHECK_THAT(results[rank].output, ContainsSubstring("DONE"));
    const std::string said = line_after(results[rank].output, "SAID ");
    if (rank == 1)
      CHECK_THAT(said, ContainsSubstring("inputs in a group of"));
    else
      CHECK_THAT(said, ContainsSubstring("rank 1 (host ") && ContainsSubstring("refuses its all_to_all"));
  }
}

TEST_CASE("hosts: a rank 0 that is stopped while a part is made keeps nobody for longer than the time-out",
          "[failures]") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {1, 2}, "part_without_store", {{"CALL_MS", "3000"}});
  ranks.start();
  for (const int rank : {1, 2}) {
    const ProgramResult result = ranks.rank(rank).finish();
    INFO("rank " << rank << "\n" << result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(line_after(result.output, "THREW "), Catch::Matchers::StartsWith("TimeoutError: rank 0's store at ") &&
                                                        ContainsSubstring("has not answered"));
  }
  ranks.rank(0).signal(SIGKILL);
}
