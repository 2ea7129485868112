#include "train_language_model/transformer.h"

#include <cmath>

namespace nn = torch::nn;

namespace {

nn::LayerNorm layer_norm(std::int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

void initialize(nn::Module& module, std::int64_t layers) {
  const torch::NoGradGuard no_gradients;
  for (auto& item : module.named_parameters()) {
    const std::string& name = item.key();
    if (item.value().dim() < 2) {
      if (name.ends_with("bias")) item.value().zero_();
      continue;
    }
    // Sums over layers stay of one size: GPT-2's way.
    const bool is_added = name.ends_with("attended.weight") || name.ends_with("back.weight");
    item.value().normal_(0, is_added ? 0.02 / std::sqrt(2 * double(layers)) : 0.02);
  }
}

}  // namespace

LayerImpl::LayerImpl(const Size& size)
    : heads(size.heads),
      dropout(size.dropout),
      before_attention(register_module("before_attention", layer_norm(size.width))),
      before_hidden(register_module("before_hidden", layer_norm(size.width))),
      attention(register_module("attention", nn::Linear(size.width, 3 * size.width))),
      attended(register_module("attended", nn::Linear(size.width, size.width))),
      hidden(register_module("hidden", nn::Linear(size.width, 4 * size.width))),
      back(register_module("back", nn::Linear(4 * size.width, size.width))) {}

at::Tensor LayerImpl::forward(const at::Tensor& x) {
  const std::int64_t n = x.size(0), t = x.size(1), width = x.size(2);
  // [3][n, heads, t, width / heads]
  const auto parts =
      attention(before_attention(x)).view({n, t, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor seen = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
  const at::Tensor y =
      x + torch::dropout(attended(seen.transpose(1, 2).reshape({n, t, width})), dropout, is_training());
  return y + torch::dropout(back(torch::gelu(hidden(before_hidden(y)))), dropout, is_training());
}

TransformerImpl::TransformerImpl(std::int64_t vocabulary, const Size& size, Amp precision)
    : amp(precision),
      dropout(size.dropout),
      table(register_module("table", nn::Embedding(vocabulary, size.width))),
      places(register_module("places", nn::Embedding(size.context, size.width))),
      layers(register_module("layers", nn::ModuleList())),
      last(register_module("last", layer_norm(size.width))) {
  for (std::int64_t i = 0; i < size.layers; ++i) layers->push_back(Layer(size));
  initialize(*this, size.layers);
}

at::Tensor TransformerImpl::forward(const at::Tensor& characters) {
  const Autocast mixed(amp);
  const at::Tensor numbers = torch::arange(characters.size(1), at::kLong);
  at::Tensor x = torch::dropout(table(characters.to(at::kLong)) + places(numbers), dropout, is_training());
  for (const auto& layer : *layers) x = layer->as<Layer>()->forward(x);
  return at::linear(last(x), table->weight).to(at::kFloat);
}

at::Tensor losses_of(const at::Tensor& scores, const at::Tensor& targets) {
  return torch::cross_entropy_loss(scores.flatten(0, 1), targets.to(at::kLong).flatten(), {}, at::Reduction::None)
      .view(targets.sizes())
      .mean(1);
}
