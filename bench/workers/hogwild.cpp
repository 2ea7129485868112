// How much faster do two processes train one shared model than one? Hogwild with dense gradients (a multi-layer
// perceptron of 269 k parameters, batches of 32) and with sparse ones (an embedding of 100,000 words, of which a batch
// has 256), without locks and with striped ones; one thread each. The peer is Python's Hogwild: torch.optim over a
// shared model.
#include <fmt/format.h>
#include <shoal/ipc/barrier.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/module_state.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/hogwild_optimizer.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "bench/report/report.h"
#include "bench/workers/perceptron.h"

namespace {

using Clock = std::chrono::steady_clock;
using shoal::bench::Perceptron;

constexpr int kRounds = 11, kWindows = 4, kWarmUp = 60;
constexpr std::chrono::milliseconds kWindow(250);

struct SparseImpl : torch::nn::Module {
  torch::nn::EmbeddingBag table{register_module(
      "table", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(100'000, 64).sparse(true).mode(torch::kSum)))};
  at::Tensor forward(const at::Tensor& words) { return table->forward(words).slice(1, 0, 10); }
  static at::Tensor input() { return torch::randint(100'000, {32, 8}, at::kLong); }
};
TORCH_MODULE(Sparse);

/// Steps a second of all processes together, one sample for each window.
template <class Net, class Optimizer>
std::vector<double> train(int rank, Net net, Optimizer optimizer, shoal::Barrier start) {
  at::set_num_threads(1);
  torch::manual_seed(rank);
  optimizer.attach(*net);
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 16; ++i) inputs.push_back(Net::ContainedType::input());
  const at::Tensor target = torch::randint(0, 10, {32});
  const auto step = [&](std::size_t number) {
    optimizer.zero_grad();
    torch::nll_loss(torch::log_softmax(net->forward(inputs[number % inputs.size()]), 1), target).backward();
    optimizer.step();
  };
  for (std::size_t i = 0; i < kWarmUp; ++i) step(i);
  start.wait();
  std::vector<double> samples;
  std::size_t number = 0;
  for (int window = 0; window < kWindows; ++window) {
    const auto from = Clock::now();
    const std::int64_t before = optimizer.steps();
    while (Clock::now() - from < kWindow) step(number++);
    samples.push_back(double(optimizer.steps() - before) / std::chrono::duration<double>(Clock::now() - from).count());
  }
  start.wait();  // nobody's window is without the others
  return samples;
}

template <class Net, class Optimizer>
void measure(shoal::bench::Report& report, const std::string& name, shoal::hogwild::Locking locking, double asked) {
  std::map<int, std::vector<double>> samples;
  std::vector<double> ratios;
  // In turns, so that both see the same machine.
  for (int round = 0; round < kRounds; ++round) {
    std::map<int, double> best;
    for (const int ranks : {1, 2}) {
      Net net;
      shoal::share_memory_(net);
      const Optimizer optimizer(net->parameters(), {.lr = 1e-3}, {.locking = locking});
      // Each has its part of the CPUs: some kernels of virtual machines leave two processes on one CPU beside an idle one.
      const auto of_ranks = shoal::spawn({.nprocs = ranks, .num_threads = 1, .binding = shoal::Binding::core},
                                         train<Net, Optimizer>, net, optimizer, shoal::Barrier(ranks));
      for (const double sample : of_ranks[0]) {
        samples[ranks].push_back(sample);
        best[ranks] = std::max(best[ranks], sample);
      }
    }
    ratios.push_back(best[2] / best[1]);
  }
  const auto of = [&](int ranks) { return fmt::format("{}, {} process{}", name, ranks, ranks == 1 ? "" : "es"); };
  for (const int ranks : {1, 2}) report.add("shoal", of(ranks), "steps/s", samples[ranks]);
  report.add("shoal", name + ", two by one", "times", ratios);
  // Of the rounds, in turns: single windows that another tenant of the machine disturbs say nothing of two processes.
  if (asked > 0) report.ask_value(name + ", two by one", "median", asked);
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  std::string only;
  CLI::App app("two processes that train one model, beside one");
  app.add_option("--only", only, "the cases whose names begin so, without the peer");
  CLI11_PARSE(app, argc, argv);
  shoal::bench::Report report("hogwild");
  using shoal::hogwild::Locking;
  const auto run = [&]<class Net, class Optimizer>(const std::string& name, Locking locking, double asked) {
    if (name.starts_with(only)) measure<Net, Optimizer>(report, name, locking, asked);
  };
  run.operator()<Perceptron, shoal::hogwild::SGD>("dense, SGD", Locking::none, 1.7);
  run.operator()<Perceptron, shoal::hogwild::Adam>("dense, Adam", Locking::none, 1.7);
  run.operator()<Perceptron, shoal::hogwild::Adam>("dense, Adam, striped locks", Locking::striped, 0);
  run.operator()<Sparse, shoal::hogwild::SGD>("sparse, SGD", Locking::none, 1.9);
  run.operator()<Sparse, shoal::hogwild::Adam>("sparse, Adam", Locking::none, 1.9);
  run.operator()<Sparse, shoal::hogwild::Adam>("sparse, Adam, striped locks", Locking::striped, 0);
  if (only.empty()) report.run_peer("workers/hogwild");
}
