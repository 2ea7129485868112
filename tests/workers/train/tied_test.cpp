// Tied parameters, which C++'s Module::parameters() names several times: each is one wherever shoal takes a list.
#include <fmt/format.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/data_parallel.h>
#include <shoal/workers/train/diloco.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/float_masters.h>
#include <shoal/workers/train/hogwild_optimizer.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace tied_test {

namespace {

/// The largest layer has two names.
struct TiedNetImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 6))};
  torch::nn::Linear again{register_module("again", layer)};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(6, 2))};
  explicit TiedNetImpl(at::ScalarType type = at::kDouble) { to(type); }
  at::Tensor forward(const at::Tensor& x) { return last(torch::tanh(again(torch::tanh(layer(x))))); }
};
TORCH_MODULE(TiedNet);

TiedNet make_net(int seed = 0, at::ScalarType type = at::kDouble) {
  torch::manual_seed(seed);
  return TiedNet(type);
}

/// Each parameter once, as an optimizer should have them.
std::vector<at::Tensor> once(const TiedNet& net) {
  return {net->layer->weight, net->layer->bias, net->last->weight, net->last->bias};
}

void require_equal(const TiedNet& own, const TiedNet& other, const std::string& what) {
  for (std::size_t i = 0; i < once(own).size(); ++i)
    require_close(once(own)[i], once(other)[i], fmt::format("{}, parameter {}", what, i), 1e-12);
}

std::string beside_one(int rank, ShmGroup group, bool sharded) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  TiedNet net = make_net(), reference = make_net();
  const auto maker = optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  DistributedDataParallel<TiedNet> ddp(net, process_group);
  ZeroRedundancyOptimizer optimizer(net->parameters(), maker, process_group);
  torch::optim::SGD alone(once(reference), torch::optim::SGDOptions(0.1).momentum(0.9));
  if (sharded) ddp.shard_gradients(optimizer.owners());
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    alone.zero_grad();
    loss_of(ddp(batch_of(rank, step))).backward();
    for (int other = 0; other < group.world_size(); ++other)
      (loss_of(reference(batch_of(other, step))) / group.world_size()).backward();
    optimizer.step();
    alone.step();
    require_equal(net, reference, fmt::format("step {}", step));
  }
  std::int64_t elements = 0;
  for (const std::int64_t each : optimizer.elements()) elements += each;
  require(elements == 6 * 6 + 6 + 6 * 2 + 2, fmt::format("{} elements have owners", elements));
  return "went through";
}

/// With a rate of 1 and no momentum an outer step is the mean of the parameters.
std::string outer_step(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  TiedNet net = make_net();
  DiLoCo diloco(
      net->parameters(), process_group,
      {.sync_every = 1, .outer_optimizer = optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(1.0))});
  const at::Tensor before = net->layer->weight.detach().clone();
  net->layer->weight.mutable_grad() = torch::ones({6, 6}, at::kDouble);
  {
    const torch::NoGradGuard no_grad;
    net->layer->weight.add_(rank + 1);
  }
  diloco.step();
  require_close(net->layer->weight.detach(), before + 1.5, "the mean");
  require(net->layer->weight.grad().defined(), "the inner gradient was lost");
  return "went through";
}

}  // namespace

TEST_CASE("tied parameters: DataParallel's gradient is that of the module alone") {
  TiedNet net = make_net(), alone = make_net();
  DataParallel<TiedNet> parallel(net, {.processes = 2});
  for (int step = 0; step < 2; ++step) {
    const at::Tensor input = batch_of(0, step);
    loss_of(parallel(input)).backward();
    loss_of(alone(input)).backward();
    require_same_gradients(*net, *alone, "two workers", 1e-12);
  }
}

TEST_CASE("tied parameters: a sharded optimizer trains as one that has each parameter once") {
  for (const bool sharded : {false, true})
    for (const int world : {2, 3}) {
      INFO(world << " ranks, sharded gradients " << sharded);
      for (auto& said : spawn({.nprocs = world}, beside_one, ShmGroup(world), sharded)) CHECK(said == "went through");
    }
}

TEST_CASE("tied parameters: DiLoCo's outer step is one step") {
  for (auto& said : spawn({.nprocs = 2}, outer_step, ShmGroup(2))) CHECK(said == "went through");
}

TEST_CASE("tied parameters: hogwild optimizers step once") {
  TiedNet net = make_net(), alone = make_net();
  for (at::Tensor parameter : once(net)) share_memory_(parameter);
  hogwild::SGD optimizer(net->parameters(), {.lr = 0.1, .momentum = 0.9});
  optimizer.attach(*net);
  torch::optim::SGD reference(once(alone), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    reference.zero_grad();
    loss_of(net(batch_of(0, step))).backward();
    loss_of(alone(batch_of(0, step))).backward();
    optimizer.step();
    reference.step();
  }
  require_equal(net, alone, "three steps");
}

TEST_CASE("tied parameters: float masters move them as a module without halves moves its own") {
  TiedNet net = make_net(0, at::kBFloat16);
  FloatMasters masters(net->parameters());
  CHECK(masters.parameters().size() == 4);
  torch::optim::SGD optimizer(masters.parameters(), torch::optim::SGDOptions(0.5));
  const at::Tensor before = net->layer->bias.detach().clone();
  net->layer->bias.mutable_grad() = torch::ones({6}, at::kBFloat16);
  masters.take_gradients();
  optimizer.step();
  masters.give_parameters();
  CHECK(net->layer->bias.equal((before.to(at::kFloat) - 0.5).to(at::kBFloat16)));
}

TEST_CASE("tied parameters: an optimizer's checkpoint has one state for each") {
  const TemporaryFolder folder;
  TiedNet net = make_net(), loaded = make_net(1);
  const auto train = [](TiedNet& of, torch::optim::Adam& optimizer, int step) {
    optimizer.zero_grad();
    loss_of(of(batch_of(0, step))).backward();
    optimizer.step();
  };
  torch::optim::Adam optimizer(net->parameters(), 0.01), other(loaded->parameters(), 0.01);
  CheckpointParts from, to;
  from.add("model", net);
  from.add("optimizer", optimizer, *net);
  to.add("model", loaded);
  to.add("optimizer", other, *loaded);
  train(net, optimizer, 0);
  Checkpoints checkpoints({.folder = folder.path()});
  checkpoints.save(1, from);
  train(net, optimizer, 1);
  CHECK(checkpoints.load(to) == 1);
  train(loaded, other, 1);
  require_equal(loaded, net, "after loading");
}

}  // namespace tied_test
