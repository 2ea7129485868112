// What does it cost a training step that ranks keep their models equal? A multi-layer perceptron of 269 k parameters, a
// convolutional network of 225 k and a transformer of 10.7 M, on 1, 2 and 4 ranks with one thread each: under
// DistributedDataParallel, and without communication. Both in the same processes and in turns, so that both see the same
// machine, and other ranks compute beside in either. The peer is Python's DistributedDataParallel over Gloo.
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/report/report.h"
#include "bench/workers/perceptron.h"

namespace {

using Clock = std::chrono::steady_clock;
using shoal::bench::Perceptron;

struct ConvolutionsImpl : torch::nn::Module {
  torch::nn::Conv2d first{register_module("first", torch::nn::Conv2d(1, 32, 3))};
  torch::nn::Conv2d second{register_module("second", torch::nn::Conv2d(32, 64, 3))};
  torch::nn::Linear third{register_module("third", torch::nn::Linear(64 * 5 * 5, 128))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(128, 10))};
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = torch::max_pool2d(torch::relu(first->forward(input)), 2);
    x = torch::max_pool2d(torch::relu(second->forward(x)), 2);
    return last->forward(torch::relu(third->forward(x.flatten(1))));
  }
  static at::Tensor input() { return torch::randn({32, 1, 28, 28}); }
  static at::Tensor target() { return torch::randint(0, 10, {32}); }
};
TORCH_MODULE(Convolutions);

struct TransformerImpl : torch::nn::Module {
  static constexpr std::int64_t kWords = 96, kWidth = 384;
  torch::nn::Embedding words{register_module("words", torch::nn::Embedding(kWords, kWidth))};
  torch::nn::TransformerEncoder layers{register_module(
      "layers", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                    torch::nn::TransformerEncoderLayerOptions(kWidth, 6).dim_feedforward(4 * kWidth).dropout(0), 6)))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(kWidth, kWords))};
  at::Tensor forward(const at::Tensor& input) {
    return last->forward(layers->forward(words->forward(input))).flatten(0, 1);
  }
  static at::Tensor input() { return torch::randint(0, kWords, {64, 2}); }
  static at::Tensor target() { return torch::randint(0, kWords, {128}); }
};
TORCH_MODULE(Transformer);

/// One window of one way.
struct Window {
  double steps_per_second = 0;
  double cpu_microseconds = 0, page_faults = 0, switches = 0;  // of a step
};

double microseconds(const timeval& time) { return double(time.tv_sec) * 1e6 + double(time.tv_usec); }

/// Windows of DistributedDataParallel and of no communication in turns: those with even numbers communicate.
template <class Net>
std::vector<Window> train(int rank, shoal::ShmGroup group, int steps, int windows) {
  at::set_num_threads(1);
  torch::manual_seed(rank);
  auto process_group = shoal::init_process_group(group, rank);
  Net alone, net;
  shoal::DistributedDataParallel<Net> ddp(net, process_group);
  torch::optim::SGD of_alone(alone->parameters(), torch::optim::SGDOptions(0.001));
  torch::optim::SGD of_net(net->parameters(), torch::optim::SGDOptions(0.001));
  const at::Tensor input = Net::ContainedType::input(), target = Net::ContainedType::target();
  const auto step = [&](bool communicates) {
    torch::optim::SGD& optimizer = communicates ? of_net : of_alone;
    optimizer.zero_grad();
    const at::Tensor output = communicates ? ddp.forward(input) : alone->forward(input);
    torch::nll_loss(torch::log_softmax(output, 1), target).backward();
    optimizer.step();
  };
  std::vector<Window> measured;
  for (int number = -2; number < windows; ++number) {  // two for the first buckets, caches, clock rates
    const bool communicates = number % 2 == 0;
    process_group->barrier()->wait();
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) step(communicates);
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    ::getrusage(RUSAGE_SELF, &after);
    if (number < 0) continue;
    const auto spent = [&](auto part) { return double(part(after) - part(before)) / steps; };
    measured.push_back(
        {.steps_per_second = steps / took,
         .cpu_microseconds = spent([](const rusage& u) { return microseconds(u.ru_utime) + microseconds(u.ru_stime); }),
         .page_faults = spent([](const rusage& u) { return u.ru_minflt; }),
         .switches = spent([](const rusage& u) { return u.ru_nvcsw + u.ru_nivcsw; })});
  }
  return measured;
}

struct Options {
  std::vector<int> ranks = {1, 2, 4};
  std::string only;
  double seconds = 1;
  bool peers = true;
};

/// `name`: as bench/peers/workers/ddp_step.py has it; `steps`: of a window of about a second of this machine's.
template <class Net>
void measure(shoal::bench::Report& report, const Options& options, const std::string& name,
             const std::string& described, int steps, double asked_of_plain, double asked_of_python) {
  if (!name.starts_with(options.only)) return;
  constexpr int kWindows = 12;
  steps = std::max(2, int(steps * options.seconds / kWindows));
  for (const int ranks : options.ranks) {
    const auto of_ranks =
        shoal::spawn({.nprocs = ranks, .num_threads = 1}, train<Net>, shoal::ShmGroup(ranks), steps, kWindows);
    // A step is over when all ranks have done it; without communication each goes on by itself, so their mean counts.
    const auto mean = [&](std::size_t window, double Window::* part) {
      double sum = 0;
      for (const auto& windows : of_ranks) sum += windows[window].*part;
      return sum / ranks;
    };
    const std::string case_name = fmt::format("{}, {} rank{}", described, ranks, ranks == 1 ? "" : "s");
    const auto add = [&](const std::string& what, const std::string& unit, double Window::* part) {
      for (const std::size_t first : {0u, 1u}) {
        std::vector<double> samples;
        for (std::size_t window = first; window < kWindows; window += 2) samples.push_back(mean(window, part));
        report.add(first == 0 ? "shoal" : "no communication", case_name + what, unit, samples);
      }
    };
    add("", "steps/s", &Window::steps_per_second);
    add(": CPU time of a step", "us", &Window::cpu_microseconds);
    add(": page faults of a step", "faults", &Window::page_faults);
    add(": context switches of a step", "switches", &Window::switches);
    if (options.peers)
      report.run_peer("workers/ddp_step",
                      {name, case_name, std::to_string(ranks), std::to_string(steps), std::to_string(kWindows)});
    if (ranks != 2) continue;
    if (asked_of_plain > 0) report.ask(case_name, "median", "no communication", asked_of_plain);
    if (asked_of_python > 0 && options.peers) report.ask(case_name, "median", "python DDP", asked_of_python);
  }
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  Options options;
  CLI::App app("a training step under DistributedDataParallel, without communication, and in Python");
  app.add_option("--ranks", options.ranks, "how many (1 2 4)");
  app.add_option("--only", options.only, "models whose names begin so: perceptron, convolutions, transformer");
  app.add_option("--seconds", options.seconds, "for each model and number of ranks, about");
  app.add_flag("--peers,!--no-peers", options.peers, "run the peers too");
  CLI11_PARSE(app, argc, argv);
  shoal::bench::Report report("ddp_step");
  measure<Perceptron>(report, options, "perceptron", "MLP of 269 k parameters, batch 32", 3600, 0.85, 4);
  measure<Convolutions>(report, options, "convolutions", "convolutions of 225 k parameters, batch 32", 360, 0, 0);
  measure<Transformer>(report, options, "transformer", "transformer of 10.7 M parameters, 128 words", 36, 0.92, 0);
}
