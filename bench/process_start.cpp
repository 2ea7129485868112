// How long does it take to start a process that runs an empty function, and to join it? Each start method beside
// torch.multiprocessing's, a bare fork of this process, and an exec of this program. And how long until the function
// runs, from a spare and without; many at once; from a parent with much memory.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <shoal/runtime/fork_server_client.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "bench/report/report.h"

namespace {

using shoal::StartMethod;

void nothing() {}
void nothing_in_rank(int) {}

std::vector<double> start_and_join(StartMethod method, int count) {
  std::vector<double> samples;
  for (int i = 0; i < count + 1; ++i) {
    double took = shoal::bench::seconds([&] {
      shoal::Process process({.name = "empty", .start_method = method}, nothing);
      process.start();
      process.join();
    });
    if (i > 0) samples.push_back(took * 1e3);  // the first one starts the fork server
  }
  return samples;
}

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// From start() to the first instruction of the function, in another process, which notes the time itself.
std::vector<double> start_to_function(int spares, int count) {
  shoal::start_fork_server({.spares = spares});
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // as a program that has other things to do
    shoal::Process process({.name = "empty", .start_method = StartMethod::forkserver}, now);
    const std::int64_t before = now();
    process.start();
    samples.push_back(double(process.result() - before) * 1e-6);
  }
  return samples;
}

/// The floor of that: the same from a fork of this process.
std::vector<double> fork_to_function(int count) {
  auto* seen = static_cast<std::int64_t*>(
      ::mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    const std::int64_t before = now();
    const pid_t child = ::fork();
    if (child == 0) {
      *seen = now();
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    samples.push_back(double(*seen - before) * 1e-6);
  }
  return samples;
}

/// All started and joined; of one, that is start_and_join.
std::vector<double> many_at_once(StartMethod method, int nprocs, int count) {
  std::vector<double> samples;
  for (int i = 0; i < count; ++i)
    samples.push_back(1e3 * shoal::bench::seconds(
                                [&] { shoal::spawn({.nprocs = nprocs, .start_method = method}, nothing_in_rank); }));
  return samples;
}

/// Proportional share of the memory of the fork server's spares, of each.
std::vector<double> memory_of_spares(int spares) {
  const pid_t server = shoal::start_fork_server({.spares = spares});
  std::this_thread::sleep_for(std::chrono::milliseconds(100 * spares));
  std::vector<double> megabytes;
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", server, server));
  for (pid_t pid; children >> pid;) {
    std::ifstream rollup(fmt::format("/proc/{}/smaps_rollup", pid));
    std::string word;
    while (rollup >> word)
      if (double kilobytes; (word == "Private_Dirty:") && rollup >> kilobytes) megabytes.push_back(kilobytes / 1024);
  }
  return megabytes;
}

std::vector<double> bare_fork(int count) {
  std::vector<double> samples;
  for (int i = 0; i < count; ++i)
    samples.push_back(1e3 * shoal::bench::seconds([] {
                        pid_t child = ::fork();
                        if (child == 0) ::_exit(0);
                        ::waitpid(child, nullptr, 0);
                      }));
  return samples;
}

/// This program again, which loads libtorch and ends at once.
std::vector<double> bare_exec(int count) {
  std::vector<double> samples;
  for (int i = 0; i < count; ++i)
    samples.push_back(1e3 * shoal::bench::seconds([] {
                        char name[] = "process_start", argument[] = "--only-load";
                        char* arguments[] = {name, argument, nullptr};
                        pid_t child;
                        if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0)
                          ::waitpid(child, nullptr, 0);
                      }));
  return samples;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && ::strcmp(argv[1], "--only-load") == 0) ::_exit(0);
  shoal::init(argc, argv);
  at::set_num_threads(1);  // a thread pool of libtorch's would keep `fork` from being used
  (void)at::ones({2}).sum().item<float>();
  shoal::bench::Report report("process_start");
  report.add("exec and load of libtorch", "spawn", "ms", bare_exec(15));
  report.add("shoal", "spawn", "ms", start_and_join(StartMethod::spawn, 15));
  report.add("bare fork and exit", "forkserver", "ms", bare_fork(200));
  report.add("shoal", "forkserver", "ms", start_and_join(StartMethod::forkserver, 200));
  report.add("bare fork and exit", "fork", "ms", bare_fork(200));
  report.add("shoal", "fork", "ms", start_and_join(StartMethod::fork, 200));
  report.add("bare fork", "until the function runs", "ms", fork_to_function(200));
  report.add("shoal, forked for it", "until the function runs", "ms", start_to_function(0, 60));
  report.add("shoal", "until the function runs", "ms", start_to_function(2, 60));
  for (const int nprocs : {1, 4, 32, 64})
    report.add("shoal", fmt::format("{} at once, forkserver", nprocs), "ms",
               many_at_once(StartMethod::forkserver, nprocs, 6));
  if (const auto memory = memory_of_spares(4); !memory.empty()) report.add("shoal", "memory of a spare", "MB", memory);
  shoal::start_fork_server({});
  // A parent that has touched much memory: only a fork of itself pays for it.
  std::vector<char> ballast(100u << 20, 1);
  report.add("bare fork and exit", "forkserver, from a parent of 100 MB", "ms", bare_fork(50));
  report.add("shoal", "forkserver, from a parent of 100 MB", "ms", start_and_join(StartMethod::forkserver, 50));
  report.add("shoal", "fork, from a parent of 100 MB", "ms", start_and_join(StartMethod::fork, 50));
  report.run_peer("process_start");
}
