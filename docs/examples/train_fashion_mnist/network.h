// The network that is trained.
#pragma once

#include <torch/torch.h>

/// Two convolutions and two fully connected layers: images [n, 28, 28] of bytes to class scores [n, 10].
struct NetworkImpl : torch::nn::Module {
  NetworkImpl();
  at::Tensor forward(const at::Tensor& images);

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear hidden, classes;
};
TORCH_MODULE(Network);
