// data_parallel beside the module alone, over "devices" that are all the CPU.
#include <shoal/workers/train/data_parallel_devices.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace data_parallel_devices_test {

namespace {

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  torch::nn::Linear first{nullptr}, last{nullptr}, unused{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 20));
    norm = register_module("norm", torch::nn::BatchNorm1d(20));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
    last = register_module("last", torch::nn::Linear(20, 3));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) {
    if (input.size(1) != 6) throw std::invalid_argument(fmt::format("{} features", input.size(1)));
    at::Tensor x = first->forward(input);
    if (with_norm) x = norm->forward(x);
    return last->forward(dropout->forward(torch::tanh(x)));
  }
  bool with_norm = false;
};
TORCH_MODULE(Net);

/// Several inputs, several outputs; what differs by device is what the part's first element says.
struct PairImpl : torch::nn::Cloneable<PairImpl> {
  at::Tensor weight;
  PairImpl() { reset(); }
  void reset() override { weight = register_parameter("weight", torch::full({1}, 2.0)); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& a, const at::Tensor& b) {
    if (a.numel() > 0 && a.flatten()[0].item<float>() == -1) throw std::runtime_error("no such luck");
    return {a * weight, (a * b).sum() * weight[0]};
  }
};
TORCH_MODULE(Pair);

Net make() {
  torch::manual_seed(0);
  Net net;
  net->dropout->eval();
  return net;
}

/// Matrix products of other sizes round otherwise.
bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && torch::allclose(a, b, 1e-12, 1e-12);
}

const DataParallelDevices kThree{.devices = {at::kCPU, at::kCPU, at::kCPU}};

}  // namespace

TEST_CASE("data_parallel over devices: outputs and gradients are those of the module alone") {
  Net net = make(), alone = make();
  const at::Tensor input = torch::randn({10, 6}, at::kDouble), weights = torch::randn({10, 3}, at::kDouble);
  at::Tensor own_input = input.clone().requires_grad_(), other_input = input.clone().requires_grad_();
  for (int step = 0; step < 2; ++step) {  // the second adds to what is there
    const at::Tensor output = data_parallel(net, own_input, kThree), expected = alone->forward(other_input);
    CHECK(close(output, expected));
    (output * weights).sum().backward();
    (expected * weights).sum().backward();
  }
  CHECK(close(own_input.grad(), other_input.grad()));
  for (const auto& item : alone->named_parameters()) {
    INFO(item.key());
    const at::Tensor own = net->named_parameters()[item.key()].grad();
    REQUIRE(own.defined() == item.value().grad().defined());
    if (own.defined()) CHECK(close(own, item.value().grad()));
  }
  CHECK(net->first->weight.is_leaf());
}

TEST_CASE("data_parallel over devices: as many parts as the batch is good for, and what each device did") {
  Net net = make();
  std::vector<DeviceShare> shares;
  const auto samples = [&](std::int64_t batch) {
    const at::Tensor input = torch::randn({batch, 6}, at::kDouble);
    CHECK(close(data_parallel(net, input, kThree, &shares), net->forward(input)));
    std::vector<std::int64_t> all;
    for (const DeviceShare& share : shares) all.push_back(share.samples);
    return all;
  };
  CHECK(samples(10) == std::vector<std::int64_t>{4, 4, 2});
  CHECK(samples(3) == std::vector<std::int64_t>{1, 1, 1});
  CHECK(samples(2) == std::vector<std::int64_t>{1, 1, 0});
  CHECK(shares[0].seconds > 0);
  CHECK(shares[2].seconds == 0);
  CHECK(samples(1) == std::vector<std::int64_t>{1, 0, 0});
  CHECK(samples(0) == std::vector<std::int64_t>{0, 0, 0});
  CHECK_FALSE(shares[0].allocated_bytes.has_value());
  CHECK_THAT(device_table(shares), ContainsSubstring("device    samples forward, ms allocated, MiB peak, MiB\ncpu  "));
  CHECK(device_table({{.device = at::Device(at::kCUDA, 1),
                       .samples = 7,
                       .seconds = 0.0125,
                       .allocated_bytes = 3 << 20,
                       .peak_allocated_bytes = 5 << 20}})
            .ends_with("\ncuda:1          7      12.500            3.0       5.0\n"));
}

TEST_CASE("data_parallel over devices: several inputs and outputs, along any dimension; scalars become a vector") {
  Pair pair;
  const at::Tensor a = torch::randn({2, 5}), b = torch::randn({2, 5});
  const auto [product, sums] =
      data_parallel(pair, DataParallelDevices{.devices = {at::kCPU, at::kCPU}, .dim = 1}, nullptr, a, b);
  CHECK(torch::equal(product, 2 * a));
  CHECK(sums.sizes() == at::IntArrayRef{2});
  CHECK(torch::allclose(sums[0], 2 * (a * b).narrow(1, 0, 3).sum()));
  CHECK(torch::allclose(sums[1], 2 * (a * b).narrow(1, 3, 2).sum()));
  (product.sum() + sums.sum()).backward();
  CHECK(torch::allclose(pair->weight.grad(), (a.sum() + (a * b).sum()).reshape({1})));
  const auto [again, one] = data_parallel(pair, DataParallelDevices{.devices = {at::kCPU}, .dim = -1}, nullptr, a, b);
  CHECK(torch::equal(again, 2 * a));
  CHECK(one.dim() == 0);
}

TEST_CASE("data_parallel over devices: copies train where the module does, and its own statistics count") {
  Net net = make(), alone = make();
  net->with_norm = alone->with_norm = true;
  const at::Tensor input = torch::randn({9, 6}, at::kDouble);
  (void)data_parallel(net, input, kThree);
  (void)alone->forward(input.narrow(0, 0, 3));
  CHECK(torch::equal(net->norm->running_mean, alone->norm->running_mean));
  net->norm->eval();  // one part alone: the copies have to know
  alone->norm->eval();
  CHECK(close(data_parallel(net, input, kThree), alone->forward(input)));
}

TEST_CASE("data_parallel over devices: what is frozen gets no gradient, and without recording nobody does") {
  Net net = make();
  net->first->weight.requires_grad_(false);
  const at::Tensor input = torch::randn({6, 6}, at::kDouble);
  data_parallel(net, input, kThree).sum().backward();
  CHECK_FALSE(net->first->weight.grad().defined());
  CHECK(net->first->bias.grad().defined());
  for (at::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  CHECK_FALSE(data_parallel(net, input, kThree).requires_grad());
  const torch::NoGradGuard no_grad;
  CHECK_FALSE(data_parallel(net, input, kThree).requires_grad());
}

namespace {

struct ScaledImpl : torch::nn::Cloneable<ScaledImpl> {
  at::Tensor scale;
  ScaledImpl() { reset(); }
  void reset() override { scale = register_buffer("scale", torch::linspace(1, 2, 6, at::kDouble)); }
  at::Tensor forward(const at::Tensor& input) { return (input * scale).tanh(); }
};
TORCH_MODULE(Scaled);

}  // namespace

TEST_CASE("data_parallel over devices: a buffer that requires a gradient gets it from all copies") {
  Scaled net, alone;
  const at::Tensor input = torch::randn({9, 6}, at::kDouble);
  for (Scaled* one : {&net, &alone}) (*one)->scale.set_requires_grad(true);
  data_parallel(net, input, kThree).pow(2).sum().backward();
  alone->forward(input).pow(2).sum().backward();
  CHECK(close(net->scale.grad(), alone->scale.grad()));
  net->scale.set_requires_grad(false);
  CHECK_FALSE(data_parallel(net, input, kThree).requires_grad());
}

TEST_CASE("data_parallel over devices: random numbers of the program stay what they are") {
  Net net = make();
  const at::Tensor input = torch::ones({6, 6}, at::kDouble);
  torch::manual_seed(5);
  const at::Tensor expected = torch::rand(4);
  torch::manual_seed(5);
  (void)data_parallel(net, input, kThree);
  CHECK(torch::equal(torch::rand(4), expected));
}

TEST_CASE("data_parallel over devices: what a device throws names it, and comes when all have ended") {
  Pair pair;
  at::Tensor a = torch::zeros({6}), b = torch::ones({6});
  a[2] = -1;  // the second part's first
  CHECK_THROWS_WITH(data_parallel(pair, kThree, nullptr, a, b),
                    ContainsSubstring("on cpu (part 2 of 3)") && ContainsSubstring("no such luck"));
  CHECK_THROWS_AS(data_parallel(pair, kThree, nullptr, a, b), Error);
}

TEST_CASE("data_parallel over devices: what cannot be is said before anything is computed") {
  Net net = make();
  Pair pair;
  const at::Tensor input = torch::randn({4, 6}, at::kDouble);
  const auto refused = [&](const DataParallelDevices& options, const at::Tensor& tensor) {
    try {
      (void)data_parallel(net, tensor, options);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  if (!torch::cuda::is_available()) CHECK_THAT(refused({}, input), ContainsSubstring("no CUDA device"));
  CHECK_THAT(refused({.devices = {at::kXLA}}, input), ContainsSubstring("xla"));
  CHECK_THAT(refused({.devices = {at::kCPU}, .dim = 2}, input), ContainsSubstring("2 dimensions, and dim is 2"));
  CHECK_THAT(refused(kThree, at::Tensor()), ContainsSubstring("input 0 is undefined"));
  CHECK_THAT(refused(kThree, torch::tensor(1.0)), ContainsSubstring("0 dimensions"));
  CHECK_THROWS_WITH(data_parallel(pair, kThree, nullptr, torch::ones({4}), torch::ones({3})),
                    ContainsSubstring("input 0 has 4 samples in dimension 0, and input 1 has 3"));
  net->norm->register_buffer("elsewhere", torch::empty({1}, at::kMeta));
  CHECK_THAT(refused(kThree, input), ContainsSubstring("'norm.elsewhere' is on meta, and the first device is cpu"));
}

TEST_CASE("data_parallel over devices: CUDA devices do what the CPU does, and tell of their memory") {
  const int count = int(torch::cuda::device_count());
  if (count == 0) {
    WARN("SKIPPED: there is no CUDA device");
    return;
  }
  Net net = make(), alone = make();
  net->to(at::Device(at::kCUDA, 0));
  const at::Tensor input = torch::randn({64, 6}, at::kDouble);
  // One device twice, where there is but one.
  DataParallelDevices where;
  if (count == 1) where.devices = {at::Device(at::kCUDA, 0), at::Device(at::kCUDA, 0)};
  std::vector<DeviceShare> shares;
  const at::Tensor output = data_parallel(net, input, where, &shares), expected = alone->forward(input);
  CHECK(output.device() == at::Device(at::kCUDA, 0));
  CHECK(torch::allclose(output.cpu(), expected, 1e-9, 1e-9));
  output.sum().backward();
  expected.sum().backward();
  for (const auto& item : alone->named_parameters())
    if (item.value().grad().defined())
      CHECK(torch::allclose(net->named_parameters()[item.key()].grad().cpu(), item.value().grad(), 1e-9, 1e-9));
  for (const DeviceShare& share : shares) {
    CHECK(share.seconds > 0);
    CHECK(share.allocated_bytes.value_or(0) > 0);
    CHECK(share.peak_allocated_bytes.value_or(0) >= share.allocated_bytes.value_or(0));
  }
}

}  // namespace data_parallel_devices_test
