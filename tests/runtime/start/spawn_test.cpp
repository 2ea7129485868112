#include <shoal/runtime/spawn.h>

#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/environment.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/start/methods.h"

namespace shoal {
namespace {

struct Metrics {
  int rank;
  double loss;
  std::map<std::string, std::vector<int>> extra;
};

Metrics train(int rank, double scale, const std::string& name, std::vector<int> numbers) {
  numbers.push_back(rank);
  return {rank, scale * rank, {{name, numbers}}};
}

TEST_CASE("spawn: results come back in rank order, made of the arguments") {
  FOR_EACH_METHOD(method);
  const std::vector<Metrics> results =
      spawn({.nprocs = 4, .start_method = method}, train, 0.5, "name", std::vector{7, 8});
  REQUIRE(results.size() == 4);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(results[rank].rank == rank);
    CHECK(results[rank].loss == 0.5 * rank);
    CHECK(results[rank].extra == std::map<std::string, std::vector<int>>{{"name", {7, 8, rank}}});
  }
}

TEST_CASE("spawn: takes functions, lambdas, generic lambdas, and functions that return nothing") {
  FOR_EACH_METHOD(method);
  Queue<int> queue(16);
  spawn({.nprocs = 2, .start_method = method}, [](int rank, Queue<int> to) { to.put(rank); }, queue);
  CHECK(queue.get() + queue.get() == 1);
  CHECK(spawn(
            {.nprocs = 2, .start_method = method}, [](int rank, auto x, auto y) { return rank + x + y; }, 10, 0.5) ==
        std::vector{10.5, 11.5});
  CHECK(spawn({.nprocs = 1, .start_method = method}, [](int) noexcept { return std::optional<int>(); }) ==
        std::vector<std::optional<int>>{std::nullopt});
}

TEST_CASE("spawn: large arguments and results cross whole") {
  FOR_EACH_METHOD(method);
  std::vector<std::uint64_t> numbers(300'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i * i;
  auto doubled = [](int, std::vector<std::uint64_t> values) {
    for (auto& value : values) value *= 2;
    return values;
  };
  const auto results = spawn({.nprocs = 2, .start_method = method}, doubled, numbers);
  for (auto& number : numbers) number *= 2;
  CHECK((results[0] == numbers && results[1] == numbers));
}

TEST_CASE("spawn: every rank is a process of its own and knows who it is") {
  FOR_EACH_METHOD(method);
  struct Seen {
    int pid, rank, nprocs;
    std::string name, table_name;
  };
  auto look = [](int) {
    const CurrentProcess& self = current_process();
    SessionCore& session = SessionCore::current();
    return Seen{::getpid(), self.rank, self.nprocs, self.name, session.record(session.self().slot()).name};
  };
  std::set<int> pids{::getpid()};
  const auto seen = spawn({.nprocs = 3, .start_method = method, .name = "trainer"}, look);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(seen[rank].rank == rank);
    CHECK(seen[rank].nprocs == 3);
    CHECK(seen[rank].name == "trainer");
    CHECK(seen[rank].table_name == "trainer " + std::to_string(rank));
    pids.insert(seen[rank].pid);
  }
  CHECK(pids.size() == 4);
  CHECK(current_process().rank == -1);
  CHECK(spawn({.nprocs = 3, .start_method = method}, [](int) { return local_rank(); }) == std::vector{0, 1, 2});
  CHECK(local_rank() == 0);
}

int helpers_helper_local_rank() {
  Process helper(local_rank);
  helper.start();
  helper.join();
  return helper.result();
}

TEST_CASE("local_rank: whom a rank starts, and whom that starts, works for the rank's device") {
  const auto method = GENERATE(StartMethod::forkserver, StartMethod::spawn, StartMethod::fork);
  CAPTURE(method_name(method));
  const auto asked = [](int) {
    Process helper(helpers_helper_local_rank);
    helper.start();
    helper.join();
    return helper.result();
  };
  CHECK(spawn({.nprocs = 3, .start_method = method}, asked) == std::vector{0, 1, 2});
  CHECK(helpers_helper_local_rank() == 0);
}

TEST_CASE("spawn: an nprocs that cannot be is refused with its number") {
  auto nothing = [](int) {};
  CHECK_THROWS_WITH(spawn({.nprocs = 0}, nothing), ContainsSubstring("nprocs is 0"));
  CHECK_THROWS_AS(spawn({.nprocs = -3}, nothing), std::invalid_argument);
  CHECK_THROWS_WITH(spawn({.nprocs = -3}, nothing), ContainsSubstring("nprocs is -3"));
  CHECK_THROWS_AS(spawn({.nprocs = 100'000}, nothing), std::invalid_argument);
  CHECK_THROWS_WITH(spawn({.nprocs = 100'000}, nothing),
                    ContainsSubstring("nprocs is 100000") && ContainsSubstring("room for"));
}

TEST_CASE("spawn: each rank is told its share of the CPUs, or what was asked for") {
  FOR_EACH_METHOD(method);
  ::unsetenv("OMP_NUM_THREADS");
  auto threads = [](int) { return current_process().num_threads; };
  const int share = std::max(1, usable_cpus() / 2);
  CHECK(spawn({.nprocs = 2, .start_method = method}, threads) == std::vector{share, share});
  CHECK(spawn({.nprocs = 1, .start_method = method, .num_threads = 3}, threads) == std::vector{3});
  ::setenv("OMP_NUM_THREADS", "5", 1);
  CHECK(spawn({.nprocs = 1, .start_method = method}, threads) == std::vector{0});
  ::unsetenv("OMP_NUM_THREADS");
}

TEST_CASE("spawn: works from several threads at once") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int result : spawn({.nprocs = 2, .start_method = method}, [](int rank, int x) { return rank + x; }, i * 100))
        sum += result;
    });
  for (auto& thread : threads) thread.join();
  CHECK(sum == 2 * (0 + 100 + 200 + 300) + 4);
}

TEST_CASE("spawn: sixty-four at once") {
  FOR_EACH_METHOD(method);
  const auto results = spawn({.nprocs = 64, .start_method = method}, [](int rank) { return rank; });
  for (int rank = 0; rank < 64; ++rank) CHECK(results[rank] == rank);
}

}  // namespace
}  // namespace shoal
