// What do reads and changes of a dictionary and a list cost that all processes share? Beside Python's Manager and
// Redis, which have a server process for that.
#include <fmt/format.h>
#include <shoal/ipc/arena.h>
#include <shoal/ipc/array.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/dict.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/shared_bytes.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>

#include <boost/interprocess/containers/map.hpp>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

using Clock = std::chrono::steady_clock;
using Numbers = shoal::Dict<std::string, long>;

constexpr std::chrono::duration<double> kDuration{0.7};

/// us of a call, each sample the mean of many.
template <class Call>
std::vector<double> timed(Call&& call, int each) {
  std::vector<double> samples;
  for (int i = -2; i < 20; ++i) {
    const double took = shoal::bench::seconds([&] {
      for (int k = 0; k < each; ++k) call();
    });
    if (i >= 0) samples.push_back(took * 1e6 / each);
  }
  return samples;
}

long read_at_once(int, Numbers numbers, shoal::Barrier start) {
  const std::string key = "key7";
  start.wait();
  long count = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < kDuration; count += 100)
    for (int i = 0; i < 100; ++i)
      if (numbers.get(key) != 7) return 0;
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("containers");
  const auto measure = [&](const char* name, int each, auto&& call) {
    report.add("shoal", name, "us", timed(call, each));
  };

  Numbers numbers;
  for (long i = 0; i < 1000; ++i) numbers.set("key" + std::to_string(i), i);
  const std::string key = "key7";
  long sum = 0;  // printed, so that nothing is left out
  measure("dict: read a number", 100'000, [&] { sum += numbers.get(key); });
  measure("dict: write a number", 50'000, [&] { numbers.set(key, 7); });
  measure("dict: add 1 under a lock", 50'000, [&] { sum += numbers.update(key, [](long x) { return x + 1; }); });
  numbers.set(key, 7);
  shoal::Dict<std::string, std::string> texts{{"kib", std::string(1024, 'x')}, {"mib", std::string(1 << 20, 'x')}};
  measure("dict: read 1 KiB", 20'000, [&] { sum += long(texts.get("kib").size()); });
  measure("dict: read 1 MiB", 200, [&] { sum += long(texts.get("mib").size()); });
  shoal::Dict<std::string, shoal::SharedBytes> shared{{"mib", shoal::SharedBytes(1 << 20)}};
  measure("dict: read 1 MiB of shared memory", 20'000, [&] { sum += long(shared.get("mib").size()); });
  measure("dict: all 1000 items", 50, [&] { sum += long(numbers.items().size()); });

  std::vector<long> range(1000);
  shoal::List<long> list(range);
  measure("list: read a number", 100'000, [&] { sum += list.get(500); });
  measure("list: append and pop", 20'000, [&] {
    list.append(1);
    sum += list.pop();
  });

  using Map = boost::interprocess::map<int, long, std::less<int>, shoal::ArenaAllocator<std::pair<const int, long>>>;
  shoal::Arena<Map> arena;
  arena.change([](Map& map) {
    for (int i = 0; i < 1000; ++i) map[i] = i;
  });
  measure("arena: look at one of 1000 numbers", 100'000, [&] { sum += arena.read()->at(500); });
  measure("arena: change one of 1000 numbers", 2'000, [&] { arena.change([](Map& map) { ++map[500]; }); });

  std::vector<double> rates;
  for (int i = 0; i < 3; ++i) {
    long reads = 0;
    for (const long count : shoal::spawn({.nprocs = 2}, read_at_once, numbers, shoal::Barrier(2))) reads += count;
    rates.push_back(double(reads) / kDuration.count());
  }
  report.add("shoal", "dict: reads of 2 processes at once", "1/s", rates);
  report.ask("dict: read a number", "median", "Python", 100);
  report.ask("dict: read 1 KiB", "median", "Python", 100);
  report.ask("list: read a number", "median", "Python", 100);
  report.run_peer("ipc/manager");
  report.run_program("redis", {});
  fmt::print(stderr, "checksum {}\n", sum);
}
