// A training that goes on from its last checkpoint, with any number of ranks, and that stops in order when SIGTERM comes.
//
//     shoal run --nproc-per-node 2 -- build/release/docs/examples/checkpoints [FOLDER [STEPS]]
//
// Without a folder it trains for a while, begins anew from what it saved, and compares.
#include <shoal/workers/checkpoint/checkpoints.h>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <fmt/format.h>
#include <shoal/runtime/environment.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/stop.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/launched_ranks.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace fs = std::filesystem;

constexpr std::int64_t kSamples = 240, kBatch = 12;

// What the program counts for itself: any encodable value.
struct Progress {
  std::int64_t samples = 0;
  std::vector<double> losses;
};

// y = 3 x + 1. Returns the weights.
std::vector<at::Tensor> train(const fs::path& folder, std::int64_t last, c10::intrusive_ptr<c10d::ProcessGroup> group) {
  const int rank = group->getRank(), ranks = group->getSize();
  at::manual_seed(1);
  torch::nn::Linear net(1, 1);
  shoal::DistributedDataParallel<torch::nn::Linear> ddp(net, group);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.05));
  const at::Tensor x = at::arange(kSamples).div(kSamples).unsqueeze(1);
  shoal::DataLoader loader({.batch_size = kBatch / ranks}, shoal::tensor_dataset(x, 3 * x + 1),
                           shoal::DistributedSampler({.num_replicas = ranks, .rank = rank}, kSamples));
  Progress progress;

  shoal::CheckpointParts parts;
  parts.add("model", net);
  parts.add("optimizer", optimizer, *net);
  parts.add("loader", loader);
  parts.add("progress", progress);
  parts.add_random_state("random");
  shoal::Checkpoints checkpoints({.folder = folder, .keep = 2}, group);

  std::int64_t step = checkpoints.load(parts).value_or(0);
  if (rank == 0) {
    fmt::print("{} ranks go on after step {}, {} samples\n", ranks, step, progress.samples);
    std::fflush(stdout);
  }
  for (std::int64_t epoch = step * kBatch / kSamples; step < last; ++epoch) {
    if (step * kBatch % kSamples == 0) loader.set_epoch(epoch);  // else it goes on within the epoch
    for (auto& [inputs, targets] : loader) {
      optimizer.zero_grad();
      const at::Tensor loss = (ddp.forward(inputs) - targets).pow(2).mean();
      loss.backward();
      optimizer.step();
      progress.samples += kBatch;
      if (++step % 50 == 0) {
        progress.losses.push_back(loss.item<double>());
        checkpoints.save_async(step, parts);
      }
      if (checkpoints.save_if_stopped(step, parts)) {
        if (rank == 0) fmt::print("stopped after step {}, {} samples\n", step, progress.samples);
        return net->parameters();
      }
      if (step == last) break;
    }
  }
  checkpoints.wait();
  return net->parameters();
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  (void)shoal::stop_requested();  // from now on SIGTERM is noted, and ends no rank
  auto group = shoal::init_process_group();
  if (argc > 1) {
    train(argv[1], argc > 2 ? std::stoll(argv[2]) : 1000, group);
    return 0;
  }
  // The same path for all ranks: named after their launcher's run, or after this process.
  const std::string run = shoal::environment().run_id;
  const fs::path folder =
      fs::temp_directory_path() / ("checkpoints-" + (run.empty() ? std::to_string(::getpid()) : run));
  train(folder / "broken", 110, group);  // the last checkpoint is of step 100
  const auto broken = train(folder / "broken", 200, group);
  const auto whole = train(folder / "whole", 200, group);
  const bool same = broken[0].equal(whole[0]) && broken[1].equal(whole[1]);
  group->barrier()->wait();
  if (group->getRank() == 0) {
    fs::remove_all(folder);
    fmt::print("{} weights\n", same ? "the same" : "other");
  }
  return same ? 0 : 1;
}
