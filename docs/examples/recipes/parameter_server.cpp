// A parameter server: this process owns the weights and applies gradients, workers compute gradients and push them.
//
//     parameter_server [STEPS]      gradients of each worker, 300 unless said otherwise
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/tensors/shared_memory_scope.h>

#include <cmath>
#include <mutex>
#include <string>

constexpr int kWorkers = 3;

// One memory and one lock, in every process that is given it.
struct Parameters {
  at::Tensor weights;
  shoal::Lock lock;  // whoever pulls sees weights of one version, never half an update
};

struct Gradient {
  int worker;
  at::Tensor values;
};

// Fits y = 3 x + 1 to its own part of x.
void work(int rank, Parameters parameters, shoal::Queue<Gradient> gradients, int steps) {
  const at::Tensor x = at::linspace(-1, 1, 64) + 0.01 * rank;
  const at::Tensor y = 3 * x + 1;
  for (int step = 0; step < steps; ++step) {
    at::Tensor weights;
    {
      std::scoped_lock guard(parameters.lock);
      weights = parameters.weights.clone();  // pull
    }
    const at::Tensor error = weights[0] * x + weights[1] - y;
    shoal::SharedMemoryScope scope;  // born where the server reads it: a handle crosses, no element
    gradients.put({rank, at::stack({(error * x).mean(), error.mean()})});  // push; waits while the server is behind
  }
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const int steps = argc > 1 ? std::stoi(argv[1]) : 300;
  Parameters parameters{at::zeros({2}), {}};
  shoal::share_memory_(parameters.weights);
  shoal::Queue<Gradient> gradients(/*capacity=*/kWorkers);  // small: a gradient is few versions old when it is applied
  auto workers = shoal::start_processes({.nprocs = kWorkers, .name = "worker"}, work, parameters, gradients, steps);

  std::vector<int> applied(kWorkers);
  for (int i = 0; i < kWorkers * steps; ++i) {
    const Gradient gradient = gradients.get();
    std::scoped_lock guard(parameters.lock);
    parameters.weights.sub_(gradient.values, 0.1);
    ++applied[gradient.worker];
  }
  workers.join();
  const double slope = parameters.weights[0].item<double>(), offset = parameters.weights[1].item<double>();
  fmt::print("{} + {} + {} gradients applied: y = {:.3f} x + {:.3f}\n", applied[0], applied[1], applied[2], slope,
             offset);
  return std::abs(slope - 3) < 1e-3 && std::abs(offset - 1) < 1e-3 ? 0 : 1;
}
