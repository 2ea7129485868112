// How long does an all-reduce of two hosts of two ranks take at 1 Gbit/s, and what crosses the network? The hosts are network
// name spaces (so this runs as root), the link is a token bucket, bytes are counted on the interfaces. The peer is Gloo
// between all ranks, which knows nothing of hosts.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <shoal/runtime/environment.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/train/launched_ranks.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/report/report.h"
#include "tests/support/network_hosts.h"
#include "tests/support/temporary_folder.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHosts = 2, kRanks = 2, kMegabits = 1000;

struct Size {
  std::int64_t bytes;
  const char* name;
  int calls;
};
constexpr Size kSizes[] = {
    {4 << 10, "4 KiB", 400}, {256 << 10, "256 KiB", 100}, {4 << 20, "4 MiB", 20}, {32 << 20, "32 MiB", 7}};

std::uint64_t bytes_sent() {
  std::uint64_t bytes = 0;
  std::ifstream("/sys/class/net/eth0/statistics/tx_bytes") >> bytes;
  return bytes;
}

/// One rank: writes a line for each call of each size to its file.
void measure(const std::string& file) {
  at::set_num_threads(1);
  const shoal::Environment self = shoal::environment();
  std::ofstream out(file);
  for (const char* backend : {"auto", "gloo"}) {
    auto group = shoal::init_process_group({.name = backend, .backend = backend});
    for (const Size& size : kSizes) {
      std::vector<at::Tensor> tensors{at::ones({size.bytes / 4})};
      for (int call = -2; call < size.calls; ++call) {
        tensors[0].fill_(1);
        group->barrier()->wait();
        // The barrier's own bytes are counted before; a little of it may come after.
        const std::uint64_t before = bytes_sent();
        const auto start = Clock::now();
        group->allreduce(tensors)->wait();
        const double took = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
        group->barrier()->wait();
        if (call >= 0) out << backend << '\t' << size.name << '\t' << took << '\t' << bytes_sent() - before << '\n';
      }
    }
  }
}

pid_t start(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  return pid;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  if (argc > 2 && std::string(argv[1]) == "--rank-writes-to") {
    measure(argv[2]);
    return 0;
  }
  using shoal::test::NetworkHosts;
  shoal::bench::Report report("collectives_hosts");
  if (const std::string reason = NetworkHosts::why_not(); !reason.empty()) {
    fmt::print("no hosts can be simulated here: {}\n", reason);
    return 1;
  }
  const NetworkHosts hosts(kHosts);
  hosts.limit(kMegabits);
  const shoal::test::TemporaryFolder folder;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kHosts * kRanks; ++rank) {
    std::vector<std::string> command = hosts.prefix(rank / kRanks);
    command.insert(command.end(),
                   {"env", fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", kHosts * kRanks),
                    fmt::format("LOCAL_RANK={}", rank % kRanks), fmt::format("LOCAL_WORLD_SIZE={}", kRanks),
                    fmt::format("GROUP_RANK={}", rank / kRanks), fmt::format("GROUP_WORLD_SIZE={}", kHosts),
                    "MASTER_ADDR=" + hosts.address(0), "MASTER_PORT=29511", "OMP_NUM_THREADS=1",
                    "XDG_RUNTIME_DIR=" + folder.path(), std::filesystem::read_symlink("/proc/self/exe").string(),
                    "--rank-writes-to", folder.file(std::to_string(rank))});
    ranks.push_back(start(command));
  }
  bool well = true;
  for (const pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    well &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  if (!well) {
    fmt::print("a rank has failed\n");
    return 1;
  }

  std::ifstream lines(folder.file("0"));
  struct Samples {
    std::vector<double> times, bytes;
  };
  std::map<std::pair<std::string, std::string>, Samples> all;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string backend, size;
    double took = 0, bytes = 0;
    std::getline(fields, backend, '\t');
    std::getline(fields, size, '\t');
    fields >> took >> bytes;
    Samples& samples = all[{backend, size}];
    samples.times.push_back(took);
    samples.bytes.push_back(bytes);
  }
  for (const Size& size : kSizes) {
    const std::string case_name = fmt::format("2 hosts of 2 ranks at 1 Gbit/s, all_reduce of {} of floats", size.name);
    for (const auto& [backend, impl] : {std::pair{"auto", "shoal"}, {"gloo", "gloo"}}) {
      const Samples& samples = all[{backend, size.name}];
      report.add_quantile(impl, case_name, "us", samples.times, 50);
      std::vector<double> shares;
      for (const double bytes : samples.bytes) shares.push_back(bytes / double(size.bytes));
      report.add(impl, case_name + ", bytes sent by a host for each byte", "", shares);
    }
  }
  report.ask("2 hosts of 2 ranks at 1 Gbit/s, all_reduce of 32 MiB of floats", "p50", "gloo", 1.8);
  report.ask("2 hosts of 2 ranks at 1 Gbit/s, all_reduce of 4 KiB of floats", "p50", "gloo", 1);
  report.ask_value("2 hosts of 2 ranks at 1 Gbit/s, all_reduce of 32 MiB of floats, bytes sent by a host for each byte",
                   "median", 1.05);
}
