// data_parallel on a GPU, twice on one if there is one: outputs, gradients, and what each device is said to have done.
#include <shoal/workers/train/data_parallel_devices.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensors/cuda/devices.h"

using namespace shoal;
using namespace shoal::test;

namespace data_parallel_device_test {

namespace {

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  torch::nn::Linear first{nullptr}, last{nullptr};
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 2000));
    last = register_module("last", torch::nn::Linear(2000, 3));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) { return last->forward(torch::tanh(first->forward(input))); }
};
TORCH_MODULE(Net);

Net make() {
  torch::manual_seed(0);
  return {};
}

bool close(const at::Tensor& a, const at::Tensor& b) { return torch::allclose(a.cpu(), b.cpu(), 1e-9, 1e-9); }

}  // namespace

TEST_CASE("data_parallel: on GPUs outputs and gradients are those of the module alone on the CPU OnCuda") {
  if (skipped<OnCuda>()) return;
  Net net = make(), alone = make();
  const at::Device first(at::kCUDA, 0), last(at::kCUDA, c10::DeviceIndex(OnCuda::devices() - 1));
  net->to(first);
  const at::Tensor input = torch::randn({11, 6}, at::kDouble), weights = torch::randn({11, 3}, at::kDouble);
  std::vector<DeviceShare> shares;
  // The input lies on the CPU, and so parts of it are copied to each device.
  const at::Tensor output = data_parallel(net, input, {.devices = {first, last}}, &shares);
  CHECK(output.device() == first);
  const at::Tensor expected = alone->forward(input);
  CHECK(close(output, expected));
  (output * weights.to(first)).sum().backward();
  (expected * weights).sum().backward();
  for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
    CHECK(net->parameters()[i].grad().device() == first);
    CHECK(close(net->parameters()[i].grad(), alone->parameters()[i].grad()));
  }
  REQUIRE(shares.size() == 2);
  CHECK(shares[0].samples == 6);
  CHECK(shares[1].samples == 5);
  for (const DeviceShare& share : shares) {
    CHECK(share.device.is_cuda());
    CHECK(share.seconds > 0);
    REQUIRE(share.allocated_bytes);
    CHECK(*share.allocated_bytes > 0);
    CHECK(*share.peak_allocated_bytes >= *share.allocated_bytes);
  }
  CHECK_THAT(device_table(shares), ContainsSubstring("cuda:0"));
}

TEST_CASE("data_parallel: all GPUs are meant where none is named, and a module on the CPU is refused OnCuda") {
  if (skipped<OnCuda>()) return;
  Net net = make();
  CHECK_THROWS_WITH(data_parallel(net, torch::randn({4, 6}, at::kDouble)),
                    ContainsSubstring("is on cpu") && ContainsSubstring("cuda:0"));
  net->to(at::kCUDA);
  CHECK(data_parallel(net, torch::randn({4, 6}, at::kDouble)).size(0) == 4);
  const int beyond = OnCuda::devices();
  CHECK_THROWS_WITH(data_parallel(net, torch::randn({4, 6}, at::kDouble),
                                  {.devices = {at::Device(at::kCUDA, c10::DeviceIndex(beyond))}}),
                    ContainsSubstring("cuda:" + std::to_string(beyond)));
}

}  // namespace data_parallel_device_test
