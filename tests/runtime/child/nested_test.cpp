#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>

#include <stdexcept>
#include <vector>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

/// Sum over a tree with two children at every node.
int count_down(int rank, StartMethod method, int depth) {
  if (depth == 0) return rank + 1;
  int sum = 0;
  for (int part : spawn({.nprocs = 2, .start_method = method}, count_down, method, depth - 1)) sum += part;
  return sum;
}

TEST_CASE("nested: children start children, to any depth") {
  FOR_EACH_METHOD(method);
  CHECK(spawn({.nprocs = 2, .start_method = method}, count_down, method, 2) == std::vector{6, 6});
}

TEST_CASE("nested: every method starts every other") {
  FOR_EACH_METHOD(outer);
  const auto inner = GENERATE(StartMethod::spawn, StartMethod::forkserver, StartMethod::fork);
  CAPTURE(method_name(inner));
  auto relay = [](int rank, StartMethod by) {
    return spawn({.nprocs = 2, .start_method = by}, [](int inner_rank, int r) { return 10 * r + inner_rank; }, rank);
  };
  CHECK(spawn({.nprocs = 2, .start_method = outer}, relay, inner) == std::vector<std::vector<int>>{{0, 1}, {10, 11}});
}

TEST_CASE("nested: a failure below is told level by level") {
  FOR_EACH_METHOD(method);
  auto middle = [](int, StartMethod by) {
    spawn({.nprocs = 2, .start_method = by}, [](int rank) {
      if (rank == 1) throw std::domain_error("at the bottom");
    });
  };
  CHECK_THROWS_WITH(spawn({.start_method = method}, middle, method),
                    ContainsSubstring("rank 0") && ContainsSubstring("raised shoal::ProcessRaised: rank 1") &&
                        ContainsSubstring("raised std::domain_error: at the bottom"));
}

TEST_CASE("nested: all of a tree use one fork server") {
  FOR_EACH_METHOD(method);
  auto server = [](int) { return int(start_fork_server()); };
  CHECK(spawn({.start_method = method}, server) == std::vector<int>{start_fork_server()});
}

}  // namespace
}  // namespace shoal
