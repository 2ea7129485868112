// What does loading cost in memory, where four ranks with four workers each read one data set? All processes together,
// by PSS, which counts what n processes share once. Beside torch.utils.data, with a tensor and with Python's own
// objects.
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <shoal/internal/ipc/observe/session_view.h>
#include <shoal/ipc/barrier.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

constexpr int kRanks = 4, kWorkers = 4;
constexpr std::int64_t kSample = 3 * 32 * 32;

struct Images {
  at::Tensor images;
  std::int64_t size() const { return images.size(0); }
  at::Tensor get(std::int64_t index) const { return images[index]; }
};

/// An epoch, so that every worker has read its part; then all stay as they are until they have been looked at.
void load(int /*rank*/, const Images& dataset, shoal::Barrier loaded, shoal::Barrier looked_at) {
  shoal::DataLoader loader({.batch_size = 64, .num_workers = kWorkers}, dataset);
  for (auto& batch : loader) (void)batch.size(0);
  loaded.wait();
  looked_at.wait();
}

/// Bytes of all processes of this session.
double together() {
  const auto file = shoal::SessionFile::of_process(::getpid());
  if (!file) throw std::runtime_error("the session cannot be looked at");
  double bytes = 0;
  for (const auto& process : look_at(*file, shoal::Pss::kRead).processes) bytes += double(process.usage.pss_bytes);
  return bytes;
}

double mebibytes(double bytes) { return bytes / (1 << 20); }

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("memory of four ranks with four loader workers each over one data set, beside torch.utils.data");
  bool peers = true;
  std::int64_t size = 256;
  app.add_flag("--peers,!--no-peers", peers, "run the peers too");
  app.add_option("--mib", size, "of the data set");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  shoal::bench::Report report("loader_memory");
  const std::string all = "all processes, data set of " + std::to_string(size) + " MiB";
  const std::string more = "beside one copy of the data set";
  Images dataset{at::full({(size << 20) / kSample, kSample}, 1, at::TensorOptions(at::kByte))};
  shoal::share_memory_(dataset.images);
  std::vector<double> sums, rest;
  for (int round = 0; round < 3; ++round) {
    shoal::Barrier loaded(kRanks + 1), looked_at(kRanks + 1);
    auto ranks = shoal::start_processes({.nprocs = kRanks, .num_threads = 1}, load, dataset, loaded, looked_at);
    loaded.wait();
    const double bytes = together();
    looked_at.wait();
    ranks.join();
    sums.push_back(mebibytes(bytes));
    rest.push_back(mebibytes(bytes) - double(size));
  }
  report.add("shoal", all, "MiB", sums);
  report.add("shoal", more, "MiB", rest);
  if (peers) report.run_peer("workers/loader_memory", {std::to_string(size)});
  for (const std::string& name : {all, more}) report.ask(name, "median", "torch.utils.data", 1);
}
