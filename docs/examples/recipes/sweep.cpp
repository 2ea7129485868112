// A sweep: as many processes as there are CPUs try many configurations on one copy of the data. The best one is known
// while results come. One configuration crashes, which costs only that one.
//
//     sweep [CONFIGURATIONS]      24 unless said otherwise
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/read_only.h>
#include <shoal/workers/pool.h>
#include <shoal/workers/pool_failure.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

struct Data {
  at::Tensor inputs, targets;
};

struct Configuration {
  int number;
  double learning_rate;
};

struct Outcome {
  Configuration configuration;
  double loss;
};

Data the_data;  // of each worker: the same memory

void use_data(Data data) { the_data = data; }

Outcome try_out(Configuration configuration) {
  if (configuration.number == 5) std::abort();  // as a bug, or an out-of-memory kill, would
  at::Tensor weights = at::zeros({16});
  at::Tensor errors;
  for (int step = 0; step < 50; ++step) {
    errors = the_data.inputs.mv(weights) - the_data.targets;
    weights -= configuration.learning_rate * the_data.inputs.t().mv(errors) / errors.size(0);
  }
  return {configuration, errors.square().mean().item<double>()};
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int count = argc > 1 ? std::stoi(argv[1]) : 24;
  const at::Tensor inputs = at::rand({2000, 16});
  // Read-only: a configuration that writes to the data by mistake ends with an error instead of spoiling the others.
  Data data{shoal::read_only({.name = "inputs"}, at::Tensor(inputs)),
            shoal::read_only({.name = "targets"}, inputs.sum(1))};

  std::vector<Configuration> configurations;
  for (int i = 0; i < count; ++i) configurations.push_back({i, 0.01 * std::pow(1.2, i)});
  Outcome best{{-1, 0}, std::numeric_limits<double>::infinity()};
  int finished = 0, crashed = 0;
  {
    shoal::Pool pool({.num_threads = 1}, use_data, data);
    auto outcomes = pool.imap_unordered(try_out, configurations);  // whichever is there first
    for (int i = 0; i < count; ++i) try {
        const Outcome outcome = *outcomes.next();
        ++finished;
        if (outcome.loss < best.loss) {
          best = outcome;
          fmt::print("learning rate {:.3f}: loss {:.2e}\n", best.configuration.learning_rate, best.loss);
        }
      } catch (const shoal::WorkerDied& death) {
        ++crashed;
        fmt::print("{}\n", death.failure().what());
      }
  }
  fmt::print("{} finished, {} crashed; best: number {}, learning rate {:.3f}\n", finished, crashed,
             best.configuration.number, best.configuration.learning_rate);
  // The same alone, and none of its neighbours is better. With one thread, as there: sums in another order differ.
  at::set_num_threads(1);
  the_data = data;
  bool is_best = try_out(best.configuration).loss == best.loss;
  for (const int other : {best.configuration.number - 1, best.configuration.number + 1})
    if (other >= 0 && other < count && other != 5) is_best &= !(try_out(configurations[other]).loss < best.loss);
  return is_best && finished == count - 1 && crashed == 1 ? 0 : 1;
}
