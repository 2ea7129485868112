// The network that is trained.
#pragma once

#include <torch/torch.h>

#include <tuple>

#include "training/autocast.h"

/// Two convolutions and two fully connected layers: images [n, 28, 28] of bytes to class scores [n, 10], floats.
struct NetworkImpl : torch::nn::Module {
  explicit NetworkImpl(Amp precision);
  at::Tensor forward(const at::Tensor& images);

  /// What it is constructed from where it crosses to other processes: those of a DataParallel.
  auto shoal_arguments() const { return std::tuple(amp); }

  Amp amp;
  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear hidden, classes;
};
TORCH_MODULE(Network);
