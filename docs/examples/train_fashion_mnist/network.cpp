#include "train_fashion_mnist/network.h"

NetworkImpl::NetworkImpl(Amp precision)
    : amp(precision),
      conv1(torch::nn::Conv2dOptions(1, 16, 3).padding(1)),
      conv2(torch::nn::Conv2dOptions(16, 32, 3).padding(1)),
      hidden(32 * 7 * 7, 128),
      classes(128, 10) {
  register_module("conv1", conv1);
  register_module("conv2", conv2);
  register_module("hidden", hidden);
  register_module("classes", classes);
}

at::Tensor NetworkImpl::forward(const at::Tensor& images) {
  // In the module: so it holds in the worker processes of a DataParallel, too.
  const Autocast mixed(amp);
  // Pixels cross from the loader as bytes and become floats only here. Mean and deviation of Fashion-MNIST.
  at::Tensor x = images.unsqueeze(1).to(at::kFloat).div_(255).sub_(0.2860).div_(0.3530);
  x = torch::max_pool2d(torch::relu(conv1(x)), 2);
  x = torch::max_pool2d(torch::relu(conv2(x)), 2);
  return classes(torch::relu(hidden(x.flatten(1)))).to(at::kFloat);
}
