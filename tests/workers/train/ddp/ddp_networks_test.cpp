// DDP of networks and losses that PyTorch's own tests have: second derivatives, LSTMs, parameters that ranks use apart
// from each other before they reduce, modules that return nothing.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace ddp_networks_test {

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(6, 20))),
        second(register_module("second", torch::nn::Linear(20, 3))),
        other(register_module("other", torch::nn::Linear(20, 3))) {
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool with_second = true, bool with_other = true) {
    const at::Tensor inner = first(x).tanh();
    at::Tensor result = inner.narrow(1, 0, 3);
    if (with_second) result = result + second(inner);
    if (with_other) result = result + other(inner);
    return result;
  }
  torch::nn::Linear first, second, other;
};
TORCH_MODULE(Net);

/// Its loss has the norm of the gradient by the input.
at::Tensor penalized(const at::Tensor& input, const at::Tensor& output) {
  const at::Tensor slope = torch::autograd::grad({output.sum()}, {input}, {}, std::nullopt, /*create_graph=*/true)[0];
  return loss_of(output) + slope.norm(2, 1).sub(1).pow(2).mean();
}

std::string gradient_penalty(int rank, ShmGroup group, bool views) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Net net, reference;
  copy_values(*net, *reference);
  DistributedDataParallel<Net> ddp({.bucket_bytes = 300, .first_bucket_bytes = 100, .gradient_as_bucket_view = views},
                                   net, process_group);
  torch::optim::SGD optimizer(net->parameters(), 0.1), of_reference(reference->parameters(), 0.1);
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    of_reference.zero_grad();
    const at::Tensor input = batch_of(rank, step).requires_grad_();
    penalized(input, ddp(input)).backward();
    for (int other = 0; other < 2; ++other) {
      const at::Tensor its = batch_of(other, step).requires_grad_();
      (penalized(its, reference->forward(its)) / 2).backward();
    }
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
    optimizer.step();
    of_reference.step();
  }
  return "went through";
}

std::string lstm(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  const auto options = torch::nn::LSTMOptions(6, 10).num_layers(2).bidirectional(true).batch_first(true);
  torch::nn::LSTM net(options), reference(options);
  net->to(at::kDouble);
  reference->to(at::kDouble);
  copy_values(*net, *reference);
  DistributedDataParallel<torch::nn::LSTM> ddp({.bucket_bytes = 2000, .first_bucket_bytes = 500}, net, process_group);
  torch::optim::SGD optimizer(net->parameters(), 0.1), of_reference(reference->parameters(), 0.1);
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    of_reference.zero_grad();
    const auto sequences = [&](int of) { return batch_of(of, step, 20).view({4, 5, 6}); };
    loss_of(std::get<0>(ddp(sequences(rank)))).backward();
    for (int other = 0; other < 2; ++other) (loss_of(std::get<0>(reference->forward(sequences(other)))) / 2).backward();
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
    optimizer.step();
    of_reference.step();
  }
  return "went through";
}

/// In no_sync() each rank uses another part of the network, or neither; what is reduced then is the mean of the sums.
std::string used_apart(int rank, ShmGroup group, bool views) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Net net, reference;
  copy_values(*net, *reference);
  DistributedDataParallel<Net> ddp({.bucket_bytes = 300,
                                    .first_bucket_bytes = 100,
                                    .find_unused_parameters = true,
                                    .gradient_as_bucket_view = views},
                                   net, process_group);
  const auto uses_second = [](int of, int step) { return (of + step) % 2 == 0; };
  const auto uses_other = [](int of, int step) { return (of + step) % 3 == 1; };
  for (int step = 0; step < 12; ++step) {
    if (step % 3 == 0) {
      net->zero_grad();
      reference->zero_grad();
    }
    const auto own = [&] {
      loss_of(ddp(batch_of(rank, step), uses_second(rank, step), uses_other(rank, step))).backward();
    };
    for (int other = 0; other < 2; ++other)
      (loss_of(reference->forward(batch_of(other, step), uses_second(other, step), uses_other(other, step))) / 2)
          .backward();
    if (step % 3 < 2) {
      const auto no_sync = ddp.no_sync();
      own();
      continue;
    }
    own();
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
  }
  return "went through";
}

std::string graph_that_changes(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  DistributedDataParallel<Net> ddp({.static_graph = true}, net, process_group);
  try {
    for (int step = 0; step < 6; ++step) loss_of(ddp(batch_of(rank, step), true, step < 2)).backward();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

struct KeepsLossImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 3))};
  at::Tensor loss;
  void forward(const at::Tensor& x) { loss = layer(x).pow(2).mean(); }
};
TORCH_MODULE(KeepsLoss);

std::string returns_nothing(int rank, ShmGroup group, bool find_unused) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  KeepsLoss net;
  DistributedDataParallel<KeepsLoss> ddp({.find_unused_parameters = find_unused}, net, process_group);
  const auto input = [](int of) { return torch::full({2, 6}, of + 1.0); };
  try {
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp.forward(input(rank));
      net->loss.backward();
      const at::Tensor got = net->layer->weight.grad().clone();
      net->zero_grad();
      for (int other = 0; other < 2; ++other) {
        net->forward(input(other));
        (net->loss / 2).backward();
      }
      require_close(got, net->layer->weight.grad(), fmt::format("step {}", step), 1e-6);
    }
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: a loss with a gradient's norm has the same second derivatives as in one process") {
  for (const bool views : {true, false})
    for (const std::string& said : spawn({.nprocs = 2}, gradient_penalty, ShmGroup(2), views))
      CHECK(said == "went through");
}

TEST_CASE("DDP: a bidirectional LSTM of two layers trains as in one process") {
  for (const std::string& said : spawn({.nprocs = 2}, lstm, ShmGroup(2))) CHECK(said == "went through");
}

TEST_CASE("DDP: ranks that use other parameters each while they accumulate get the mean of the sums") {
  for (const bool views : {true, false})
    for (const std::string& said : spawn({.nprocs = 2}, used_apart, ShmGroup(2), views)) CHECK(said == "went through");
}

TEST_CASE("DDP: a static graph that changes is refused, and the error does not ask for what static_graph excludes") {
  for (const std::string& said : spawn({.nprocs = 2}, graph_that_changes, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("other.weight") && ContainsSubstring("static_graph says"));
}

TEST_CASE("DDP: forward() may return nothing, unless its results are looked through") {
  for (const std::string& said : spawn({.nprocs = 2}, returns_nothing, ShmGroup(2), false))
    CHECK(said == "went through");
  for (const std::string& said : spawn({.nprocs = 2}, returns_nothing, ShmGroup(2), true))
    CHECK_THAT(said, ContainsSubstring("forward() returns void"));
}

}  // namespace ddp_networks_test
