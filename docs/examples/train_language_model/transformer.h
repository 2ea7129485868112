// The network that is trained.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "train_language_model/settings.h"
#include "training/autocast.h"

/// One layer: attention to what came before, then two fully connected layers for each character. [n, t, width] to the same.
struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(const Size& size);
  at::Tensor forward(const at::Tensor& x);

  std::int64_t heads;
  double dropout;
  torch::nn::LayerNorm before_attention, before_hidden;
  torch::nn::Linear attention, attended, hidden, back;
};
TORCH_MODULE(Layer);

/// A decoder as GPT-2 is one: places in a vocabulary [n, t], t at most the context, to scores of the next character
/// [n, t, vocabulary], floats. Characters have one table for both ends, so its parameter is there once under one name.
struct TransformerImpl : torch::nn::Module {
  TransformerImpl(std::int64_t vocabulary, const Size& size, Amp precision);
  at::Tensor forward(const at::Tensor& characters);

  Amp amp;
  double dropout;
  torch::nn::Embedding table, places;
  torch::nn::ModuleList layers;
  torch::nn::LayerNorm last;
};
TORCH_MODULE(Transformer);

/// Mean loss of each sequence: scores [n, t, vocabulary] and the characters that came [n, t] to [n].
at::Tensor losses_of(const at::Tensor& scores, const at::Tensor& targets);
