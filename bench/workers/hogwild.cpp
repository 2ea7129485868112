// How much faster do two processes train one shared model than one? Hogwild with dense gradients (a multi-layer
// perceptron of 269 k parameters, batches of 32) and with sparse ones (an embedding of 100,000 words, of which a batch
// has 256), without locks and with striped ones; one thread each. Both go through one data set, of which each process has
// its part. Beside it, what the machine allows: two processes with a model each, which share nothing but its caches and its
// memory. The peer is Python's Hogwild: torch.optim over a shared model.
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
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/report/line_round_trip.h"
#include "bench/report/report.h"
#include "bench/workers/perceptron.h"

namespace {

using Clock = std::chrono::steady_clock;
using shoal::bench::Perceptron;

constexpr int kRounds = 11, kWindows = 4, kWarmUp = 60;
// More than caches hold, as in a training: a few batches again and again would be rows that one core keeps, and two do not.
constexpr int kBatches = 512;
constexpr std::chrono::milliseconds kWindow(250);

struct SparseImpl : torch::nn::Module {
  torch::nn::EmbeddingBag table{register_module(
      "table", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(100'000, 64).sparse(true).mode(torch::kSum)))};
  at::Tensor forward(const at::Tensor& words) { return table->forward(words).slice(1, 0, 10); }
  static at::Tensor input() { return torch::randint(100'000, {32, 8}, at::kLong); }
};
TORCH_MODULE(Sparse);

template <class Net, class Optimizer>
struct Model {
  Net net;
  Optimizer optimizer;
};

template <class Net, class Optimizer>
Model<Net, Optimizer> make_model(shoal::hogwild::Locking locking) {
  Net net;
  shoal::share_memory_(net);
  return {.net = net, .optimizer = Optimizer(net->parameters(), {.lr = 1e-3}, {.locking = locking})};
}

/// Process `rank`'s part of the data set.
template <class Net>
std::vector<at::Tensor> inputs_of(int rank, int ranks) {
  std::vector<at::Tensor> inputs;
  for (int batch = rank; batch < kBatches; batch += ranks) {
    torch::manual_seed(std::uint64_t(batch));
    inputs.push_back(Net::ContainedType::input());
  }
  return inputs;
}

/// Steps a second of all processes together, one sample for each window. All train models[0], or each its own.
template <class Net, class Optimizer>
std::vector<double> train(int rank, int ranks, std::vector<Model<Net, Optimizer>> models, shoal::Barrier start) {
  at::set_num_threads(1);
  const std::vector<at::Tensor> inputs = inputs_of<Net>(rank, ranks);
  const at::Tensor target = torch::randint(0, 10, {32});
  auto& [net, optimizer] = models[std::size_t(rank) % models.size()];
  optimizer.attach(*net);
  const auto step = [&](std::size_t number) {
    optimizer.zero_grad();
    torch::nll_loss(torch::log_softmax(net->forward(inputs[number % inputs.size()]), 1), target).backward();
    optimizer.step();
  };
  const auto steps = [&] {
    std::int64_t all = 0;
    for (const auto& model : models) all += model.optimizer.steps();
    return all;
  };
  std::size_t number = 0;
  while (number < kWarmUp) step(number++);
  start.wait();
  std::vector<double> samples;
  for (int window = 0; window < kWindows; ++window) {
    const auto from = Clock::now();
    const std::int64_t before = steps();
    while (Clock::now() - from < kWindow) step(number++);
    samples.push_back(double(steps() - before) / std::chrono::duration<double>(Clock::now() - from).count());
  }
  start.wait();  // nobody's window is without the others
  return samples;
}

struct Way {
  std::string name;
  int ranks, models;
};

template <class Net, class Optimizer>
void measure(shoal::bench::Report& report, const std::string& name, shoal::hogwild::Locking locking, double asked) {
  const std::vector<Way> ways{{.name = "1 process", .ranks = 1, .models = 1},
                              {.name = "2 processes", .ranks = 2, .models = 1},
                              {.name = "2 processes, a model each", .ranks = 2, .models = 2}};
  std::vector<std::vector<double>> samples(ways.size()), ratios(ways.size());
  std::vector<double> line;
  // In turns, so that all see the same machine.
  for (int round = 0; round < kRounds; ++round) {
    if (const auto trip = shoal::bench::line_round_trip()) line.push_back(*trip);
    std::vector<double> best;
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const int ranks = ways[way].ranks;
      std::vector<Model<Net, Optimizer>> models;
      for (int i = 0; i < ways[way].models; ++i) models.push_back(make_model<Net, Optimizer>(locking));
      // Each has its part of the CPUs: some kernels of virtual machines leave two processes on one CPU beside an idle one.
      const auto of_ranks = shoal::spawn({.nprocs = ranks, .num_threads = 1, .binding = shoal::Binding::core},
                                         train<Net, Optimizer>, ranks, models, shoal::Barrier(ranks));
      samples[way].insert(samples[way].end(), of_ranks[0].begin(), of_ranks[0].end());
      best.push_back(std::ranges::max(of_ranks[0]));
      ratios[way].push_back(best[way] / best[0]);
    }
  }
  for (std::size_t way = 0; way < ways.size(); ++way)
    report.add("shoal", fmt::format("{}, {}", name, ways[way].name), "steps/s", samples[way]);
  report.add("shoal", name + ", two by one", "times", ratios[1]);
  report.add("shoal", name + ", a model each, two by one", "times", ratios[2]);
  if (!line.empty()) report.add("cache line", name + ", there and back", "ns", line);
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
