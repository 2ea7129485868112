// Starts that must not compile: the message names the reason.
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

void starts() {
  [[maybe_unused]] int captured = 3;
  shoal::spawn({.nprocs = 2, .start_method = shoal::StartMethod::fork}, [&](int rank) { return rank + captured; });
  shoal::SpawnOptions options;
  shoal::spawn(options, [&](int rank) { return rank + captured; });
  shoal::Process process({.name = "p", .start_method = shoal::StartMethod::fork}, [&] { return captured; });
  // References to handles, to what has some inside, and to what is not written to.
  shoal::spawn(
      {.nprocs = 2}, [](int, shoal::Queue<int>&, std::vector<shoal::Queue<int>>&, const Settings&) {},
      shoal::Queue<int>(1), std::vector<shoal::Queue<int>>{}, Settings());
  shoal::Process parts({.name = "p"}, [](Parts&, Settings&&) {}, Parts{shoal::Queue<int>(1), 1}, Settings());
}

void refused() {
  [[maybe_unused]] int captured = 3;
#if REFUSED == 1
  // refused: a_callable_with_captures_works_with_StartMethod_fork_only
  shoal::spawn({.nprocs = 2, .start_method = shoal::StartMethod::spawn}, [&](int rank) { return rank + captured; });
  // refused: member number Index .from 0., of type Member, keeps Aggregate from crossing
  shoal::spawn({.nprocs = 2}, [](int) { return Inner{}; });
  // refused: takes another number of arguments
  shoal::spawn({.nprocs = 2}, [](int, int) {});
  // refused: first parameter is the rank
  shoal::spawn({.nprocs = 2}, [] {});
  // refused: what the function writes to parameter number Index .from 0, without the rank., a T&, nobody sees
  shoal::spawn({.nprocs = 2}, [](int, std::string, std::vector<int>&) {}, std::string(), std::vector<int>{});
  // refused: what the function writes to parameter number Index
  shoal::Process process({.name = "p"}, [](Settings&) {}, Settings());
#elif REFUSED == 2
  // refused: a callable with captures exists in this process only
  shoal::spawn({.nprocs = 2}, [&](int rank) { return rank + captured; });
#elif REFUSED == 3
  // refused: a callable with captures exists in this process only
  shoal::Process process({.name = "p"}, [&] { return captured; });
#elif REFUSED == 4
  // refused: a callable with captures exists in this process only
  shoal::Process process([&] { return captured; });
#elif REFUSED == 5
  // refused: a pointer .to T above. means nothing in another process
  shoal::spawn({.nprocs = 2}, [](int, std::FILE*) {}, nullptr);
#endif
}
