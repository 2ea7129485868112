// What must not compile, one CASE at a time; the message names the reason. CASE 0 is what does compile.
#include <shoal/ipc/queue.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>

#include <cstdio>
#include <string>
#include <vector>

struct Inner {
  std::FILE* file;
};

struct Settings {
  std::vector<int> numbers;
  std::string text;
};

struct Parts {
  shoal::Queue<int> queue;
  int number;
};

void start() {
  [[maybe_unused]] int captured = 3;
#if CASE == 0
  shoal::spawn({.nprocs = 2, .start_method = shoal::StartMethod::fork}, [&](int rank) { return rank + captured; });
  shoal::SpawnOptions options;
  shoal::spawn(options, [&](int rank) { return rank + captured; });
  shoal::Process process({.name = "p", .start_method = shoal::StartMethod::fork}, [&] { return captured; });
  // References to handles, to what has some inside, and to what is not written to.
  shoal::spawn(
      {.nprocs = 2}, [](int, shoal::Queue<int>&, std::vector<shoal::Queue<int>>&, const Settings&) {},
      shoal::Queue<int>(1), std::vector<shoal::Queue<int>>{}, Settings());
  shoal::Process parts({.name = "p"}, [](Parts&, Settings&&) {}, Parts{shoal::Queue<int>(1), 1}, Settings());
#elif CASE == 1
  shoal::spawn({.nprocs = 2}, [&](int rank) { return rank + captured; });
#elif CASE == 2
  shoal::spawn({.nprocs = 2, .start_method = shoal::StartMethod::spawn}, [&](int rank) { return rank + captured; });
#elif CASE == 3
  shoal::Process process({.name = "p"}, [&] { return captured; });
#elif CASE == 4
  shoal::spawn({.nprocs = 2}, [](int, std::FILE*) {}, nullptr);
#elif CASE == 5
  shoal::spawn({.nprocs = 2}, [](int) { return Inner{}; });
#elif CASE == 6
  shoal::spawn({.nprocs = 2}, [](int, int) {});
#elif CASE == 7
  shoal::spawn({.nprocs = 2}, [] {});
#elif CASE == 8
  shoal::spawn({.nprocs = 2}, [](int, std::string, std::vector<int>&) {}, std::string(), std::vector<int>{});
#elif CASE == 9
  shoal::Process process({.name = "p"}, [](Settings&) {}, Settings());
#elif CASE == 10
  shoal::Process process([&] { return captured; });
#endif
}
