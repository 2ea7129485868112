// Ranks that `shoal run`, torchrun, mpirun or Slurm has started fit a line together: each has its own samples, and the
// gradients are averaged over all.
//
//     shoal run --nproc-per-node 4 -- build/release/docs/examples/ranks_of_a_launcher
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/runtime/environment.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/train/launched_ranks.h>

#include <cmath>
#include <vector>

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const shoal::Environment self = shoal::environment();
  auto group = shoal::init_process_group();

  // y = 3 x + 1. Every rank sees another part of x.
  at::Tensor x = at::linspace(-1, 1, 64) + 0.01 * self.rank;
  at::Tensor y = 3 * x + 1;
  at::Tensor weights = at::zeros({2});
  for (int step = 0; step < 200; ++step) {
    at::Tensor error = weights[0] * x + weights[1] - y;
    std::vector<at::Tensor> gradient{at::stack({(error * x).mean(), error.mean()})};
    group->allreduce(gradient)->wait();
    weights -= 0.5 * gradient[0] / self.world_size;
  }
  const double slope = weights[0].item<double>(), offset = weights[1].item<double>();

  // All have the same bits.
  std::vector<at::Tensor> sum{weights.clone()};
  group->allreduce(sum)->wait();
  const bool agree = sum[0].sub(weights * self.world_size).abs().max().item<double>() < 1e-5;
  if (self.rank == 0)
    fmt::print("{} ranks {}: y = {:.3f} x + {:.3f}\n", self.world_size, agree ? "agree" : "differ", slope, offset);
  return agree && std::abs(slope - 3) < 1e-3 && std::abs(offset - 1) < 1e-3 ? 0 : 1;
}
