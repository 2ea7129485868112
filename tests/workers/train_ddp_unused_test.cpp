// DDP's find_unused_parameters: which parameters a forward pass may leave out, and what it may return.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

at::Tensor input_of(int rank, int step) {
  torch::manual_seed(1000 + 10 * step + rank);
  return torch::randn({8, 6}, at::kDouble);
}

/// Two layers, of which a forward pass uses one or both.
struct TwoPathsImpl : torch::nn::Module {
  TwoPathsImpl()
      : first(register_module("first", torch::nn::Linear(6, 4))),
        second(register_module("second", torch::nn::Linear(6, 4))) {
    to(at::kDouble);
  }
  torch::nn::Linear first, second;
};

struct SwitchImpl : TwoPathsImpl {
  at::Tensor forward(const at::Tensor& x, bool use_second) { return use_second ? second(x) : first(x); }
};
TORCH_MODULE(Switch);

/// The gradient that one process with both ranks' batches would have; undefined where no rank used the layer.
at::Tensor joint_gradient(torch::nn::Linear layer, int step, const std::vector<int>& ranks_that_use_it, int world) {
  layer->weight.mutable_grad() = at::Tensor();
  for (int rank : ranks_that_use_it) (layer(input_of(rank, step)).pow(2).mean() / world).backward();
  return layer->weight.grad();
}

std::string change_the_set(int rank, ShmGroup group, bool ranks_differ) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Switch net, reference;
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    reference->parameters()[i].detach().copy_(net->parameters()[i].detach());
  DistributedDataParallel<Switch> ddp(DistributedDataParallelOptions{.find_unused_parameters = true}, net,
                                      process_group);
  for (int step = 0; step < 6; ++step) {
    net->zero_grad();
    auto uses_second = [&](int of_rank) { return (step + (ranks_differ ? of_rank : 0)) % 2 == 1; };
    ddp.forward(input_of(rank, step), uses_second(rank)).pow(2).mean().backward();
    std::vector<int> first, second;
    for (int other = 0; other < group.world_size(); ++other) (uses_second(other) ? second : first).push_back(other);
    auto check = [&](const char* name, torch::nn::Linear& own, torch::nn::Linear& like, const std::vector<int>& users) {
      at::Tensor wanted = joint_gradient(like, step, users, group.world_size());
      require(own->weight.grad().defined() == wanted.defined(), fmt::format("{}: gradient or none, {}", step, name));
      if (wanted.defined())
        require(torch::allclose(own->weight.grad(), wanted, 1e-9, 1e-12), fmt::format("{}: {}", step, name));
    };
    check("first", net->first, reference->first, first);
    check("second", net->second, reference->second, second);
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: the set of unused parameters may change from step to step, and from rank to rank") {
  for (bool ranks_differ : {false, true})
    for (auto& said : spawn({.nprocs = 2}, change_the_set, ShmGroup(2), ranks_differ)) CHECK(said == "went through");
}
