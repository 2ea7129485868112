// A training on a GPU, saved there, and loaded there and on the CPU.
#include <shoal/tensors/codec.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <torch/torch.h>

#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace checkpoint_device_test {

namespace {

/// A module and its optimizer on a device, and steps that depend on what the steps before left behind.
struct Training {
  torch::nn::Sequential net;
  torch::optim::Adam optimizer;

  explicit Training(const at::Device& device) : net(made_on(device)), optimizer(net->parameters(), 0.01) {}

  void steps(int count) {
    const at::Device device = net->parameters()[0].device();
    for (int i = 0; i < count; ++i) {
      optimizer.zero_grad();
      net->forward(at::ones({4, 6}, at::TensorOptions(at::kDouble).device(device))).square().sum().backward();
      optimizer.step();
    }
  }
  CheckpointParts parts() {
    CheckpointParts parts;
    parts.add("model", net);
    parts.add("optimizer", optimizer, *net);
    return parts;
  }
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : net->parameters()) all.push_back(parameter.detach().cpu().clone());
    return all;
  }

 private:
  static torch::nn::Sequential made_on(const at::Device& device) {
    torch::nn::Sequential net(torch::nn::Linear(6, 20), torch::nn::Tanh(), torch::nn::BatchNorm1d(20),
                              torch::nn::Linear(20, 3));
    net->to(device, at::kDouble);
    return net;
  }
};

double difference(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  double largest = 0;
  for (std::size_t i = 0; i < others.size(); ++i)
    largest = std::max(largest, (some.at(i) - others[i]).abs().max().item<double>());
  return largest;
}

}  // namespace

TEST_CASE("checkpoints: a training on a GPU goes on there and on the CPU as if nothing had been OnCuda") {
  if (skipped<OnCuda>()) return;
  const bool asynchronous = GENERATE(false, true);
  const TemporaryFolder folder;
  const at::Device device(at::kCUDA, 0);
  Training first(device);
  first.steps(3);
  const std::vector<at::Tensor> saved = first.values();
  {
    Checkpoints checkpoints({.folder = folder.path()});
    CheckpointParts parts = first.parts();
    if (asynchronous)
      checkpoints.save_async(3, parts);
    else
      checkpoints.save(3, parts);
    // What is changed while the writer writes is not in what it writes.
    first.steps(2);
    checkpoints.wait();
  }
  for (const at::Device& to : {device, at::Device(at::kCPU)}) {
    Training next(to);
    CheckpointParts parts = next.parts();
    Checkpoints checkpoints({.folder = folder.path()});
    REQUIRE(checkpoints.load(parts) == 3);
    CHECK(next.net->parameters()[0].device() == to);
    CHECK(difference(next.values(), saved) == 0);
    next.steps(2);
    CHECK(difference(next.values(), first.values()) < 1e-6);  // Adam divides by what is small and rounds otherwise
  }
}

namespace {

struct Progress {
  std::int64_t step = 0;
  at::Tensor mean;
};

}  // namespace

DEVICE_TEST_CASE("a value of a checkpoint with a tensor on a device is refused by name, and nothing is left of it") {
  using On = TestType;
  if (skipped<On>()) return;
  {
    const TemporaryFolder folder;
    Checkpoints checkpoints({.folder = folder.path()});
    Progress progress{7, at::ones({5}, at::kFloat).to(on<On>().device())};
    CheckpointParts parts;
    parts.add("progress", progress);
    CHECK_THROWS_WITH(checkpoints.save(1, parts),
                      ContainsSubstring("'progress' of a checkpoint") && ContainsSubstring("Save tensor.cpu()"));
    CHECK_FALSE(checkpoints.load(parts));
    progress.mean = progress.mean.cpu();
    checkpoints.save(1, parts);
    progress = {};
    CHECK(checkpoints.load(parts) == 1);
    CHECK(progress.mean.equal(at::ones({5})));
  }
  CHECK(nothing_left<On>());
}

}  // namespace checkpoint_device_test
