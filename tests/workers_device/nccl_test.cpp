// Ranks that have a GPU: NCCL for CUDA tensors beside shared memory for those of the CPU. NCCL refuses two ranks on one
// GPU, so a machine with one shows a group of one rank, and what two ranks are told.
#include <shoal/internal/workers/train/nccl/nccl_backend.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/launched_ranks.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace nccl_test {

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 20));
    last = register_module("last", torch::nn::Linear(20, 3));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) { return last->forward(torch::tanh(first->forward(input))); }
};
TORCH_MODULE(Net);

Net make() {
  torch::manual_seed(5);
  return {};
}

/// Row i is a function of i.
struct Rows {
  std::int64_t size() const { return 96; }
  std::pair<at::Tensor, at::Tensor> get(std::int64_t index) const {
    const at::Tensor input = at::sin(at::arange(6, at::kDouble) * double(index + 1));
    return {input, input.slice(0, 0, 3).cumsum(0)};
  }
};

/// Two epochs of a module by the batches of a loader; `forward` is the module's or DDP's.
template <class Loader, class Forward>
void train(Loader& loader, Net& net, Forward&& forward) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& [inputs, targets] : loader) {
      optimizer.zero_grad();
      torch::mse_loss(forward(inputs), targets).backward();
      optimizer.step();
    }
}

/// The largest difference between a module that DDP trains on the GPU, with batches that a loader copies there, and one
/// that this process trains on the CPU.
double difference_of_training(int) {
  Group group = init_process_group({.backend = "nccl"});
  Net net = make(), alone = make();
  net->to(at::kCUDA);
  {
    DistributedDataParallel<Net> ddp(net, group);
    DataLoader loader({.batch_size = 8, .num_workers = 2, .pin_memory = true, .to_device = at::Device(at::kCUDA, 0)},
                      Rows{});
    train(loader, net, [&](const at::Tensor& inputs) { return ddp.forward(inputs); });
  }
  DataLoader loader({.batch_size = 8}, Rows{});
  train(loader, alone, [&](const at::Tensor& inputs) { return alone->forward(inputs); });
  double largest = 0;
  const std::vector<at::Tensor> expected = alone->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i)
    largest = std::max(largest, (net->parameters()[i].cpu() - expected[i]).abs().max().item<double>());
  return largest;
}

/// Sums, in each of which a rank gives a tensor of its own; empty where all is as it should be.
std::string wrong_calls(int) {
  Group group = init_process_group({.backend = "nccl"});
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  std::vector<at::Tensor> sum{at::full({1000}, 3, options)};
  group->allreduce(sum)->wait();
  if (!sum[0].cpu().equal(at::full({1000}, 3.0f))) return "allreduce";
  std::vector<at::Tensor> sent{at::arange(10, options)};
  group->broadcast(sent)->wait();
  if (!sent[0].cpu().equal(at::arange(10, at::kFloat))) return "broadcast";
  std::vector<std::vector<at::Tensor>> gathered{{at::empty({10}, options)}};
  group->allgather(gathered, sent)->wait();
  if (!gathered[0][0].cpu().equal(at::arange(10, at::kFloat))) return "allgather";
  group->barrier()->wait();
  std::vector<at::Tensor> own{at::full({10}, 2.0f)};
  group->allreduce(own)->wait();
  if (!own[0].equal(at::full({10}, 2.0f))) return "allreduce on the CPU";
  return {};
}

/// What CUDA tensors of a rank get from the backend; each rank's own CPU tensors are summed right before and after.
std::string what_cuda_tensors_get(int rank, const std::string& backend) {
  Group group = init_process_group({.backend = backend});
  std::string said = "nothing";
  const auto sums_are_right = [&] {
    std::vector<at::Tensor> own{at::arange(4, at::kFloat) * (rank + 1)};
    group->allreduce(own)->wait();
    return own[0].equal(at::arange(4, at::kFloat) * 3);
  };
  if (!sums_are_right()) return "wrong sums before";
  try {
    std::vector<at::Tensor> sum{at::ones({4}, at::TensorOptions(at::kFloat).device(at::kCUDA))};
    group->allreduce(sum)->wait();
    (void)sum[0].cpu();
  } catch (const std::exception& error) {
    said = error.what();
  }
  if (!sums_are_right()) return "wrong sums after: " + said;
  return said;
}

bool skipped_here() { return skipped<OnCuda>() || !why_no_nccl().empty(); }

}  // namespace

TEST_CASE("nccl: what one rank trains on a GPU is what a process trains on the CPU OnCuda") {
  if (skipped_here()) return;
  const std::vector<double> differences = spawn({.nprocs = 1}, difference_of_training);
  CHECK(differences.at(0) < 1e-10);
}

TEST_CASE("nccl: collectives of one rank take CUDA tensors, and those of the CPU go their own way OnCuda") {
  if (skipped_here()) return;
  CHECK(spawn({.nprocs = 1}, wrong_calls).at(0).empty());
}

TEST_CASE("nccl: two ranks with one GPU sum CPU tensors, and are told about those on the GPU OnCuda") {
  if (skipped_here() || OnCuda::devices() > 1) return;
  for (const std::string& said : spawn({.nprocs = 2}, what_cuda_tensors_get, std::string("auto"))) {
    CAPTURE(said);
    CHECK_THAT(said, ContainsSubstring("uplicate GPU"));
  }
}

TEST_CASE("nccl: without it CUDA tensors are refused by name OnCuda") {
  if (skipped_here()) return;
  for (const std::string& said : spawn({.nprocs = 2}, what_cuda_tensors_get, std::string("shm"))) {
    CAPTURE(said);
    CHECK_THAT(said, ContainsSubstring("CUDA") || ContainsSubstring("cuda"));
  }
}

}  // namespace nccl_test
