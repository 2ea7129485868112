// How long does it take to start a process that runs an empty function, and to join it? Each start method beside
// torch.multiprocessing's, a bare fork of this process, and an exec of this program.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
  std::vector<double> many;
  for (int i = 0; i < 6; ++i)
    many.push_back(1e3 * shoal::bench::seconds([] { shoal::spawn({.nprocs = 32}, nothing_in_rank); }));
  report.add("shoal", "32 at once, forkserver", "ms", many);
  report.run_peer("process_start");
}
