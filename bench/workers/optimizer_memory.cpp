// What does ZeroRedundancyOptimizer save, and what does it cost? Adam over a multi-layer perceptron of 4 M parameters on
// each rank as a whole, and spread over the ranks: bytes of state on each rank, and the time of a step of the optimizer.
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/optimizer.h>
#include <shoal/workers/train/process_group.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 30, kWarmUp = 5;

struct Measured {
  double mebibytes = 0;
  std::vector<double> milliseconds;
};

Measured measure(int rank, shoal::ShmGroup group, bool spread) {
  auto process_group = shoal::init_process_group(group, rank);
  torch::nn::Sequential model(torch::nn::Linear(1024, 2048), torch::nn::ReLU(), torch::nn::Linear(2048, 1024));
  for (at::Tensor& parameter : model->parameters())
    parameter.mutable_grad() = torch::full_like(parameter.detach(), 0.1);
  const torch::optim::AdamOptions options(1e-3);
  torch::optim::Adam whole(model->parameters(), options);
  std::unique_ptr<shoal::ZeroRedundancyOptimizer> part;
  if (spread)
    part = std::make_unique<shoal::ZeroRedundancyOptimizer>(
        model->parameters(), shoal::optimizer_maker<torch::optim::Adam>(options), process_group);
  Measured measured;
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    process_group->barrier()->wait();
    const auto start = Clock::now();
    if (spread)
      part->step();
    else
      whole.step();
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (step >= kWarmUp) measured.milliseconds.push_back(took);
  }
  double bytes = 0;
  for (const at::Tensor& tensor : shoal::optimizer_state(spread ? part->local() : whole))
    bytes += double(tensor.nbytes());
  measured.mebibytes = bytes / (1 << 20);
  return measured;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("optimizer_memory");
  for (const int ranks : {2, 4})
    for (const bool spread : {true, false}) {
      const auto measured = shoal::spawn({.nprocs = ranks, .num_threads = 1}, measure, shoal::ShmGroup(ranks), spread);
      const std::string impl = spread ? "shoal" : "Adam on each rank";
      std::vector<double> memory;
      for (const Measured& of_rank : measured) memory.push_back(of_rank.mebibytes);
      report.add(impl, fmt::format("state on each of {} ranks", ranks), "MiB", memory);
      report.add(impl, fmt::format("a step on each of {} ranks", ranks), "ms", measured[0].milliseconds);
    }
}
