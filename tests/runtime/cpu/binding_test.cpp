#include <shoal/internal/runtime/cpu/binding.h>

#include <shoal/internal/runtime/cpu/cpu_share.h>
#include <shoal/runtime/current_process.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>

#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/start/methods.h"
#include "tests/support/catch.h"

namespace shoal {
namespace {

/// Two sockets, four memory nodes each, 25 cores a node: 200 cores. One cache a node.
const char* const kLarge = "package:2 numa:4 l3:1 core:25 pu:1";

std::vector<std::string> texts(const std::vector<CpuPart>& parts) {
  std::vector<std::string> result;
  for (const CpuPart& part : parts) result.push_back(part.cpus.text());
  return result;
}

/// What must hold of any division by cores: nobody without, nobody twice where there is enough, nothing left over.
void check_cores(const Topology& machine, int count) {
  CAPTURE(count);
  const auto parts = divide_cpus(Binding::core, count, machine);
  REQUIRE(int(parts.size()) == count);
  std::multiset<int> given;
  int least = 1 << 20, most = 0;
  for (const CpuPart& part : parts) {
    CHECK_FALSE(part.cpus.empty());
    CHECK(part.threads >= 1);
    for (const int cpu : part.cpus.list()) given.insert(cpu);
    least = std::min(least, part.threads);
    most = std::max(most, part.threads);
  }
  CHECK(most - least <= 1);
  if (count <= int(machine.cores.size())) {
    CHECK(std::set<int>(given.begin(), given.end()).size() == given.size());
    std::size_t all = 0;
    for (const CpuSet& core : machine.cores) all += std::size_t(core.count());
    CHECK(given.size() == all);
  }
}

TEST_CASE("binding: 200 cores on 8 nodes: as many processes as nodes fill one each, whatever is asked for") {
  const Topology machine = Topology::synthetic(kLarge);
  REQUIRE(machine.cores.size() == 200);
  REQUIRE(machine.nodes.size() == 8);
  REQUIRE(machine.caches.size() == 8);
  for (const Binding binding : {Binding::core, Binding::cache, Binding::numa}) {
    CAPTURE(binding_name(binding));
    const auto parts = divide_cpus(binding, 8, machine);
    CHECK(texts(parts) ==
          std::vector<std::string>{"0-24", "25-49", "50-74", "75-99", "100-124", "125-149", "150-174", "175-199"});
    for (const CpuPart& part : parts) CHECK(part.threads == 25);
  }
}

TEST_CASE("binding: by core, any number of processes has whole cores, as equal as can be") {
  const Topology machine = Topology::synthetic(kLarge);
  for (int count : {1, 2, 3, 7, 8, 16, 50, 64, 199, 200, 201, 333, 1000}) check_cores(machine, count);
  check_cores(Topology::synthetic("package:1 core:1 pu:1"), 3);
  check_cores(Topology::synthetic("package:2 core:3 pu:2"), 4);
}

TEST_CASE("binding: a core is given with its hardware threads, and computes with one") {
  const Topology machine = Topology::synthetic("package:1 numa:1 l3:1 core:4 pu:2");
  const auto parts = divide_cpus(Binding::core, 2, machine);
  CHECK(texts(parts) == std::vector<std::string>{"0-3", "4-7"});
  CHECK(parts[0].threads == 2);
  // Linux numbers the second threads after all the first ones.
  const auto linux_like =
      divide_cpus(Binding::core, 4, Topology::synthetic("package:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)"));
  CHECK(texts(linux_like) == std::vector<std::string>{"0,4", "1,5", "2,6", "3,7"});
}

TEST_CASE("binding: more processes than caches or nodes share them, and the threads of each are fewer") {
  const Topology machine = Topology::synthetic("package:2 numa:1 l3:2 core:8 pu:1");
  const auto by_cache = divide_cpus(Binding::cache, 8, machine);
  CHECK(texts(by_cache) == std::vector<std::string>{"0-7", "0-7", "8-15", "8-15", "16-23", "16-23", "24-31", "24-31"});
  for (const CpuPart& part : by_cache) CHECK(part.threads == 4);
  const auto by_node = divide_cpus(Binding::numa, 3, machine);
  CHECK(texts(by_node) == std::vector<std::string>{"0-15", "0-15", "16-31"});
  CHECK(by_node[0].threads == 8);
  CHECK(by_node[2].threads == 16);
  const auto one = divide_cpus(Binding::numa, 1, machine);
  CHECK(one[0].cpus.text() == "0-31");
  CHECK(one[0].threads == 32);
}

TEST_CASE("binding: CPUs that this process may not use are given to nobody") {
  const Topology machine = Topology::synthetic(kLarge).restricted_to(CpuSet::parse("20-29,110-119"));
  CHECK(machine.cores.size() == 20);
  CHECK(machine.nodes.size() == 3);
  CHECK(texts(divide_cpus(Binding::numa, 3, machine)) == std::vector<std::string>{"20-24", "25-29", "110-119"});
  CHECK(texts(divide_cpus(Binding::core, 2, machine)) == std::vector<std::string>{"20-29", "110-119"});
}

TEST_CASE("binding: none leaves the CPUs alone and divides the cores") {
  const auto parts = divide_cpus(Binding::none, 8, Topology::synthetic(kLarge));
  for (const CpuPart& part : parts) {
    CHECK(part.cpus.empty());
    CHECK(part.threads == 25);
  }
}

TEST_CASE("binding: names are read and written, others are refused") {
  for (const Binding binding : {Binding::none, Binding::core, Binding::cache, Binding::numa})
    CHECK(parse_binding(binding_name(binding)) == binding);
  CHECK_THROWS_WITH(parse_binding("socket"), ContainsSubstring("'socket' is no binding: it is none, core, cache"));
  CHECK_THROWS_WITH(Topology::synthetic("no machine"), ContainsSubstring("'no machine' is no machine"));
}

TEST_CASE("cpu set: any number of CPUs, in the kernel's notation") {
  CpuSet set = CpuSet::parse("0-3,8,1500-1501\n");
  CHECK(set.count() == 7);
  CHECK(set.has(1500));
  CHECK_FALSE(set.has(4));
  CHECK_FALSE(set.has(100000));
  CHECK(set.text() == "0-3,8,1500-1501");
  CHECK((set & CpuSet::parse("2-8")).text() == "2-3,8");
  CHECK(CpuSet::parse("").empty());
  for (const char* bad : {"3-1", "a", "1-", "-1", "99999999", "1 2"})
    CHECK_THROWS_AS(CpuSet::parse(bad), std::invalid_argument);
}

struct Seen {
  std::vector<int> cpus;
  int threads;
  std::string variable, omp;
};

Seen look(int) {
  const char* variable = std::getenv("SHOAL_TEST_OVERRIDE");
  const char* omp = std::getenv("OMP_NUM_THREADS");
  return {CpuSet::of_this_thread().list(), current_process().num_threads, variable ? variable : "", omp ? omp : ""};
}

TEST_CASE("binding: a started process runs on its part of this machine's cores only") {
  FOR_EACH_METHOD(method);
  ::unsetenv("OMP_NUM_THREADS");
  const int cores = int(Topology::of_this_machine().cores.size());
  const int count = std::min(cores, 4);
  const auto seen = spawn({.nprocs = count, .start_method = method, .binding = Binding::core}, look);
  std::multiset<int> all;
  for (const Seen& one : seen) {
    CHECK(one.threads >= 1);
    all.insert(one.cpus.begin(), one.cpus.end());
  }
  CHECK(std::set<int>(all.begin(), all.end()).size() == all.size());
  CHECK(all.size() == CpuSet::of_this_thread().list().size());
  // Without a binding: all of them.
  CHECK(spawn({.start_method = method}, look)[0].cpus == CpuSet::of_this_thread().list());
}

TEST_CASE("binding: one process can be given its part as well, and a wrong part is refused") {
  FOR_EACH_METHOD(method);
  const auto parts = divide_cpus(Binding::core, 2);
  Process<Seen> process(
      {.start_method = method, .binding = Binding::core, .part = 1, .parts = 2}, +[] { return look(0); });
  process.start();
  CHECK(process.result().cpus == parts[1].cpus.list());
  CHECK_THROWS_WITH(
      Process<void>({.binding = Binding::core, .part = 2, .parts = 2}, +[] {}), ContainsSubstring("part 2 of 2"));
}

TEST_CASE("binding: what a bound process starts stays in its part, also by the fork server") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver);
  CAPTURE(method_name(method));
  const auto below = spawn(
      {.nprocs = 2, .start_method = method, .binding = Binding::core},
      +[](int) { return spawn({.start_method = StartMethod::forkserver}, look)[0].cpus; });
  const auto parts = divide_cpus(Binding::core, 2);
  CHECK(below[0] == parts[0].cpus.list());
  CHECK(below[1] == parts[1].cpus.list());
}

TEST_CASE("options: variables of the environment are the child's, by every method, and only its") {
  FOR_EACH_METHOD(method);
  ::unsetenv("OMP_NUM_THREADS");
  ::setenv("SHOAL_TEST_OVERRIDE", "parent", 1);
  const auto seen = spawn(
      {.start_method = method, .environment = {{"SHOAL_TEST_OVERRIDE", "first"}, {"SHOAL_TEST_OVERRIDE", "child"}}},
      look);
  CHECK(seen[0].variable == "child");
  CHECK(std::getenv("SHOAL_TEST_OVERRIDE") == std::string("parent"));
  Process<Seen> process(
      {.start_method = method, .environment = {{"SHOAL_TEST_OVERRIDE", "other"}}}, +[] { return look(0); });
  process.start();
  CHECK(process.result().variable == "other");
  ::unsetenv("SHOAL_TEST_OVERRIDE");
}

TEST_CASE("options: OMP_NUM_THREADS among the variables is the number of threads") {
  FOR_EACH_METHOD(method);
  const auto seen = spawn({.start_method = method, .environment = {{"OMP_NUM_THREADS", "3"}}}, look);
  CHECK(seen[0].threads == 3);
  CHECK(seen[0].omp == "3");
}

}  // namespace
}  // namespace shoal
