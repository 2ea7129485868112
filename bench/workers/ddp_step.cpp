// What does training with two ranks cost a step? A multi-layer perceptron of 269 k parameters, batches of 32, one
// thread a rank: two ranks that do not talk, two under DistributedDataParallel, two of Hogwild, and one alone. The
// peer is Python's DistributedDataParallel over Gloo.
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/hogwild.h>
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 3000;
constexpr int kStepsOfSample = 100;

enum class Mode { no_communication, ddp, hogwild };

torch::nn::Sequential make_model() {
  return torch::nn::Sequential(torch::nn::Linear(784, 256), torch::nn::ReLU(), torch::nn::Linear(256, 256),
                               torch::nn::ReLU(), torch::nn::Linear(256, 10));
}

/// Steps a second, one sample for every hundred steps.
std::vector<double> train(int rank, shoal::ShmGroup group, Mode mode, std::vector<at::Tensor> shared) {
  at::set_num_threads(1);
  torch::manual_seed(rank);
  auto process_group = shoal::init_process_group(group, rank);
  torch::nn::Sequential model = make_model();
  if (mode == Mode::hogwild)
    for (std::size_t i = 0; i < shared.size(); ++i) model->parameters()[i].set_data(shared[i]);
  std::unique_ptr<shoal::DistributedDataParallel<torch::nn::Sequential>> ddp;
  if (mode == Mode::ddp)
    ddp = std::make_unique<shoal::DistributedDataParallel<torch::nn::Sequential>>(model, process_group);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.001));
  at::Tensor input = torch::randn({32, 784}), target = torch::randint(0, 10, {32});
  std::vector<double> samples;
  process_group->barrier()->wait();
  for (int step = 0; step < kSteps;) {
    auto start = Clock::now();
    for (int i = 0; i < kStepsOfSample; ++i, ++step) {
      optimizer.zero_grad();
      at::Tensor output = ddp ? ddp->forward(input) : model->forward(input);
      torch::nll_loss(torch::log_softmax(output, 1), target).backward();
      optimizer.step();
    }
    samples.push_back(kStepsOfSample / std::chrono::duration<double>(Clock::now() - start).count());
  }
  samples.erase(samples.begin(), samples.begin() + 5);  // the first buckets, caches, clock rates
  return samples;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("ddp_step");
  std::vector<at::Tensor> shared = make_model()->parameters();
  for (at::Tensor& parameter : shared) parameter = parameter.detach();
  shoal::share_memory_(shared);
  auto run = [&](const std::string& impl, const std::string& case_name, int ranks, Mode mode) {
    auto samples = shoal::spawn({.nprocs = ranks, .num_threads = 1}, train, shoal::ShmGroup(ranks), mode, shared);
    report.add(impl, case_name, "steps/s", samples[0]);
  };
  const std::string case_name = "MLP of 269 k parameters, batch 32, 2 ranks";
  run("shoal", case_name, 2, Mode::ddp);
  run("no communication", case_name, 2, Mode::no_communication);
  run("shoal", "the same, Hogwild, each of 2 ranks", 2, Mode::hogwild);
  run("shoal", "the same, Hogwild, 1 rank", 1, Mode::hogwild);
  report.run_peer("ddp_step");
}
