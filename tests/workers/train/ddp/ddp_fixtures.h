// What tests of DistributedDataParallel share: inputs by rank and step, and one process with everybody's batches.
#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace shoal::test {

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// A batch of doubles, another one for each rank and step.
inline at::Tensor batch_of(int rank, int step, std::int64_t samples = 8, std::int64_t features = 6) {
  torch::manual_seed(1000 + 50 * step + rank);
  return torch::randn({samples, features}, at::kDouble);
}

inline at::Tensor loss_of(const at::Tensor& output) { return output.pow(2).mean(); }

/// The same values in another module of the same class.
inline void copy_values(const torch::nn::Module& from, const torch::nn::Module& to) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : from.named_parameters()) to.named_parameters()[item.key()].copy_(item.value());
  for (const auto& item : from.named_buffers()) to.named_buffers()[item.key()].copy_(item.value());
}

inline void require_close(const at::Tensor& got, const at::Tensor& wanted, const std::string& what,
                          double tolerance = 1e-9) {
  require(got.defined() == wanted.defined(), what + ": defined or not");
  if (!got.defined()) return;
  const at::Tensor a = got.layout() == c10::kStrided ? got : got.to_dense();
  const at::Tensor b = wanted.layout() == c10::kStrided ? wanted : wanted.to_dense();
  if (a.numel() == 0 && b.numel() == 0) return;
  const double apart = (a - b).abs().max().item<double>();
  require(apart <= tolerance * (1 + b.abs().max().item<double>()), fmt::format("{}: {} apart", what, apart));
}

inline void require_same_gradients(const torch::nn::Module& got, const torch::nn::Module& wanted,
                                   const std::string& what, double tolerance = 1e-9) {
  const auto own = got.named_parameters();
  for (const auto& item : wanted.named_parameters())
    require_close(own[item.key()].grad(), item.value().grad(), what + ", gradient of " + item.key(), tolerance);
}

}  // namespace shoal::test
