// What do sharded optimizers save, and what do they cost? Adam over a multi-layer perceptron of 8.4 M parameters by three
// stages: each rank has all (0), each the optimizer's state of its part (1: ZeroRedundancyOptimizer), each the gradients
// of its part, too (2: shard_gradients). Bytes on each rank, and the time of the optimizer's step and of a whole one.
#include <fmt/format.h>
#include <malloc.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/optimizer.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "bench/report/report.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 30, kWarmUp = 5, kLayers = 8;
constexpr std::int64_t kWidth = 1024, kBucketBytes = 4 << 20;  // a layer in each bucket

struct Measured {
  double state_mebibytes = 0, gradient_mebibytes = 0, most_mebibytes = 0;
  std::vector<double> optimizer_milliseconds, step_milliseconds;
};

/// What this process has in use: its blocks of the heap, and its own memory.
double used_bytes() {
  const auto malloced = ::mallinfo2();
  double bytes = double(malloced.uordblks) + double(malloced.hblkhd);
  for (const auto& process : shoal::heap_statistics().processes)
    if (process.pid == ::getpid()) bytes += double(process.bytes);
  return bytes;
}

constexpr double kMebi = 1 << 20;
double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

Measured measure(int rank, shoal::ShmGroup group, int stage) {
  at::set_num_threads(1);
  auto process_group = shoal::init_process_group(group, rank);
  torch::nn::Sequential model;
  for (int layer = 0; layer < kLayers; ++layer) {
    model->push_back(torch::nn::Linear(kWidth, kWidth));
    model->push_back(torch::nn::ReLU());
  }
  const double before = used_bytes();
  shoal::DistributedDataParallel<torch::nn::Sequential> ddp(
      {.bucket_bytes = kBucketBytes, .first_bucket_bytes = kBucketBytes}, model, process_group);
  const torch::optim::AdamOptions options(1e-3);
  std::unique_ptr<torch::optim::Adam> whole;
  std::unique_ptr<shoal::ZeroRedundancyOptimizer> part;
  if (stage == 0)
    whole = std::make_unique<torch::optim::Adam>(model->parameters(), options);
  else
    part = std::make_unique<shoal::ZeroRedundancyOptimizer>(
        model->parameters(), shoal::optimizer_maker<torch::optim::Adam>(options), process_group);
  if (stage == 2) ddp.shard_gradients(part->owners());
  const at::Tensor input = torch::randn({8, kWidth});
  Measured measured;
  double most = 0;
  bool looks = false;  // in the last step, whose time does not count
  for (const at::Tensor& parameter : model->parameters())
    parameter.register_hook([&](const at::Tensor&) {
      if (looks) most = std::max(most, used_bytes());
    });
  for (int step = 0; step <= kWarmUp + kSteps; ++step) {
    looks = step == kWarmUp + kSteps;
    part ? part->zero_grad() : whole->zero_grad();
    process_group->barrier()->wait();
    const auto start = Clock::now();
    ddp.forward(input).pow(2).mean().backward();
    if (looks) {
      std::unordered_set<const void*> seen;  // gradients may be views of one bucket
      double bytes = 0;
      for (const at::Tensor& parameter : model->parameters())
        if (const at::Tensor& gradient = parameter.grad(); gradient.defined())
          if (seen.insert(gradient.storage().unsafeGetStorageImpl()).second)
            bytes += double(gradient.storage().nbytes());
      measured.gradient_mebibytes = bytes / kMebi;
    }
    const auto computed = Clock::now();
    part ? part->step() : void(whole->step());
    const auto done = Clock::now();
    if (step < kWarmUp || looks) continue;
    measured.optimizer_milliseconds.push_back(milliseconds(done - computed));
    measured.step_milliseconds.push_back(milliseconds(done - start));
  }
  double bytes = 0;
  for (const at::Tensor& tensor : shoal::optimizer_state(part ? part->local() : *whole))
    bytes += double(tensor.nbytes());
  measured.state_mebibytes = bytes / kMebi;
  measured.most_mebibytes = (most - before) / kMebi;
  return measured;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("optimizer_memory");
  const char* const names[] = {"Adam on each rank", "shoal, ZeRO 1", "shoal, ZeRO 2"};
  for (const int ranks : {2, 4})
    for (const int stage : {2, 1, 0}) {
      const auto measured = shoal::spawn({.nprocs = ranks, .num_threads = 1}, measure, shoal::ShmGroup(ranks), stage);
      const auto add = [&](const std::string& what, double Measured::* part) {
        std::vector<double> of_ranks;
        for (const Measured& of_rank : measured) of_ranks.push_back(of_rank.*part);
        report.add(names[stage], fmt::format("{} on each of {} ranks", what, ranks), "MiB", of_ranks);
      };
      add("optimizer's state", &Measured::state_mebibytes);
      add("gradients between the passes", &Measured::gradient_mebibytes);
      add("all but the parameters, most in a backward pass,", &Measured::most_mebibytes);
      report.add(names[stage], fmt::format("the optimizer's step on {} ranks", ranks), "ms",
                 measured[0].optimizer_milliseconds);
      report.add(names[stage], fmt::format("a training step on {} ranks", ranks), "ms", measured[0].step_milliseconds);
    }
}
