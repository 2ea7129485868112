// The multi-layer perceptron of 269 k parameters that several benchmarks train, as their peers in Python do.
#pragma once

#include <torch/torch.h>

namespace shoal::bench {

struct PerceptronImpl : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(784, 256))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(256, 256))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(256, 10))};
  at::Tensor forward(const at::Tensor& input) {
    return last->forward(torch::relu(second->forward(torch::relu(first->forward(input)))));
  }
  static at::Tensor input() { return torch::randn({32, 784}); }
  static at::Tensor target() { return torch::randint(0, 10, {32}); }
};
TORCH_MODULE(Perceptron);

}  // namespace shoal::bench
