// Collectives of ranks on several hosts: results, and calls that differ.
#include <fmt/format.h>

#include "tests/hosts/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace shoal::test;

namespace {

void check_all(HostRanks& ranks, const char* what) {
  for (const ProgramResult& result : ranks.finish()) {
    INFO(what << "\n" << result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
    CHECK(line_after(result.output, "THREW ") == "");
  }
}

}  // namespace

TEST_CASE("hosts: every collective gives what a plain loop gives, on two hosts of two ranks") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {2, 2}, "collectives");
  ranks.start();
  check_all(ranks, "2 2");
}

TEST_CASE("hosts: every collective gives what a plain loop gives, on unequal hosts") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  const std::vector<int> shape = GENERATE(std::vector<int>{3, 2}, std::vector<int>{1, 3, 2});
  HostRanks ranks(hosts, shape, "collectives");
  ranks.start();
  check_all(ranks, shape.size() == 2 ? "3 2" : "1 3 2");
}

TEST_CASE("hosts: every collective gives what a plain loop gives, with one rank a host") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  HostRanks ranks(hosts, {1, 1, 1}, "collectives");
  ranks.start();
  check_all(ranks, "1 1 1");
}

// glibc looks behind each block of memory that is freed. Where three hosts share a piece, the last one's part of a smaller
// piece may be the larger one.
TEST_CASE("hosts: sums of many pieces are right, and written nowhere else") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{1, 1, 1}, std::vector<int>{1, 3, 2});
  HostRanks ranks(hosts, shape, "pieces", {{"LD_PRELOAD", "libc_malloc_debug.so.0"}, {"MALLOC_CHECK_", "3"}});
  ranks.start();
  check_all(ranks, "pieces");
}

TEST_CASE("hosts: random calls give what a plain loop gives, and write nothing beside it") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{1, 3, 2}, std::vector<int>{1, 1, 1});
  for (int round = 0; round < test_scale(); ++round) {
    const std::string seed = std::to_string(10 * round + int(shape.size()) + shape[0]);
    HostRanks ranks(hosts, shape, "random_calls",
                    {{"PROGRESS", round % 2 == 0 ? "in_call" : "thread"}, {"SEED", seed}});
    ranks.start();
    check_all(ranks, seed.c_str());
  }
}

TEST_CASE("hosts: tensors of every kind and type go through every call, on one host, two and three") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  const std::vector<int> shape = GENERATE(std::vector<int>{3}, std::vector<int>{2, 1}, std::vector<int>{1, 1, 1});
  const char* const progress = GENERATE("in_call", "thread");
  if (test_scale() == 1 && shape.size() == 3) return;
  HostRanks ranks(hosts, shape, "odd_tensors", {{"PROGRESS", progress}});
  ranks.start();
  check_all(ranks, progress);
}

TEST_CASE("hosts: ranks that do not give the same are all told in one line, and go on") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(3);
  const std::vector<int> shape =
      GENERATE(std::vector<int>{3}, std::vector<int>{2, 1}, std::vector<int>{1, 1, 1}, std::vector<int>{1, 2, 1});
  const char* const progress = GENERATE("in_call", "thread");
  HostRanks ranks(hosts, shape, "odd_ranks", {{"PROGRESS", progress}, {"CALL_MS", "20000"}});
  ranks.start();
  check_all(ranks, progress);
}

TEST_CASE("hosts: ranks that call different things are all told who called what, and go on") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{3, 1});
  HostRanks ranks(hosts, shape, "mismatch");
  ranks.start();
  std::string first;
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    CHECK_THAT(result.output, ContainsSubstring("DONE"));
    const std::string said = line_after(result.output, "SAID ");
    CHECK_THAT(said, ContainsSubstring("all_reduce(16 bytes, sum of Float)") &&
                         ContainsSubstring("all_reduce(20 bytes, sum of Float)") && ContainsSubstring("rank 3 (host "));
    if (first.empty())
      first = result.output.substr(result.output.find("SAID"), result.output.find("DONE") - result.output.find("SAID"));
    CHECK_THAT(result.output, ContainsSubstring(first));  // all say the same
    CHECK_THAT(first, ContainsSubstring("rank 1 (host "));
  }
}

TEST_CASE("hosts: a model that is trained on several hosts is the one that one process trains") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{2, 2}, std::vector<int>{2, 1});
  HostRanks ranks(hosts, shape, "ddp");
  ranks.start();
  check_all(ranks, "ddp");
}

// On one host, and where the host of the rank has no other one to compare with.
TEST_CASE("hosts: a pass of one rank that brings no gradients is told to all, who go on together") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  const std::vector<int> shape = GENERATE(std::vector<int>{1, 2}, std::vector<int>{2, 1}, std::vector<int>{1, 1});
  const char* const progress = GENERATE("in_call", "thread");
  HostRanks ranks(hosts, shape, "lost_pass", {{"PROGRESS", progress}});
  ranks.start();
  for (const ProgramResult& result : ranks.finish()) {
    INFO(result.output << result.error);
    CHECK(result.code == 0);
    const std::string said = line_after(result.output, "SAID ");
    CHECK_THAT(said, ContainsSubstring("in forward pass 4 of DistributedDataParallel") &&
                         ContainsSubstring("is ahead: a pass that it began has brought no gradients"));
  }
}

TEST_CASE("hosts: DiLoCo's parameters are those of one process that keeps every host's replica") {
  REQUIRE_NETWORK_HOSTS();
  const NetworkHosts hosts(2);
  HostRanks ranks(hosts, {2, 1}, "diloco");
  ranks.start();
  check_all(ranks, "diloco");
}
