// What tests of checkpoints train: a small network with buffers, and its state to compare.
#pragma once

#include <shoal/workers/checkpoint/checkpoints.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace shoal::test {

inline torch::nn::Sequential small_net(int seed) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(6, 30), torch::nn::BatchNorm1d(30), torch::nn::ReLU(),
                               torch::nn::Linear(30, 4));
}

/// Changes parameters, buffers and the optimizer's state.
inline void train_step(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int step) {
  torch::manual_seed(500 + step);
  optimizer.zero_grad();
  net->forward(torch::randn({8, 6})).pow(2).mean().backward();
  optimizer.step();
}

inline bool same_values(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto equal = [](const auto& ours, const auto& theirs) {
    if (ours.size() != theirs.size()) return false;
    for (const auto& item : ours)
      if (!torch::equal(item.value(), theirs[item.key()])) return false;
    return true;
  };
  return equal(a.named_parameters(), b.named_parameters()) && equal(a.named_buffers(), b.named_buffers());
}

/// Two parts: one value, and a tensor of some bytes all of which are the step's; few enough that libtorch fills them with
/// one thread, so that a forked process can.
struct Plain {
  std::int64_t count = 0;
  at::Tensor bytes;
  CheckpointParts parts;

  explicit Plain(std::int64_t size = 20'000) : bytes(torch::zeros({size}, at::kByte)) {
    parts.add("count", count);
    parts.add("bytes", bytes);
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  void set(std::int64_t step) {
    count = step;
    bytes.fill_(step % 251);
  }
  bool is(std::int64_t step) const { return count == step && (bytes == step % 251).all().item<bool>(); }
};

}  // namespace shoal::test
