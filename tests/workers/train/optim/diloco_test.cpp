// DiLoCo beside one process that keeps all ranks' replicas.
#include <shoal/workers/train/diloco.h>

#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/float_masters.h>
#include <shoal/workers/train/process_group_parts.h>
#include <torch/torch.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace diloco_test {

namespace {

torch::nn::Sequential make_net(int seed) {
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(6, 30), torch::nn::Tanh(), torch::nn::Linear(30, 3));
  net->to(at::kDouble);
  return net;
}

std::unique_ptr<torch::optim::Optimizer> make_inner(const torch::nn::Sequential& net) {
  return std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.01));
}

/// The paper's algorithm, by hand: replicas of several workers, and one outer optimizer over parameters of its own.
struct Reference {
  Reference(int workers, MakeOptimizer outer_maker) {
    torch::nn::Sequential begin = make_net(0);
    for (const at::Tensor& parameter : begin->parameters())
      global.push_back(parameter.detach().clone().set_requires_grad(true));
    for (int worker = 0; worker < workers; ++worker) {
      replicas.push_back(make_net(0));
      inner.push_back(make_inner(replicas.back()));
    }
    outer = outer_maker(ParameterGroups{torch::optim::OptimizerParamGroup(global)});
  }
  /// One inner step of a worker, on these batches together.
  void inner_step(int worker, const std::vector<at::Tensor>& batches) {
    auto& net = replicas[std::size_t(worker)];
    net->zero_grad();
    for (const at::Tensor& batch : batches) (loss_of(net->forward(batch)) / double(batches.size())).backward();
    inner[std::size_t(worker)]->step();
  }
  /// `times`: how often each worker counts.
  void outer_step(int times = 1) {
    const torch::NoGradGuard no_grad;
    const int ranks = int(replicas.size()) * times;
    for (std::size_t i = 0; i < global.size(); ++i) {
      at::Tensor sum;
      for (auto& replica : replicas)
        for (int time = 0; time < times; ++time) {
          const at::Tensor one = (global[i] - replica->parameters()[i]) / ranks;
          sum = sum.defined() ? sum + one : one;
        }
      global[i].mutable_grad() = sum;
    }
    outer->step();
    for (auto& replica : replicas)
      for (std::size_t i = 0; i < global.size(); ++i) replica->parameters()[i].copy_(global[i]);
  }
  std::vector<at::Tensor> global;
  std::vector<torch::nn::Sequential> replicas;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> inner;
  std::unique_ptr<torch::optim::Optimizer> outer;
};

MakeOptimizer nesterov(double rate, double momentum) {
  auto options = torch::optim::SGDOptions(rate).momentum(momentum);
  return optimizer_maker<torch::optim::SGD>(options.nesterov(momentum != 0));
}

void require_equal(const torch::nn::Sequential& net, const torch::nn::Sequential& wanted, const std::string& what) {
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    require(torch::equal(net->parameters()[i], wanted->parameters()[i]), fmt::format("{}: parameter {}", what, i));
}

enum class Outer { by_default, nesterov, adam };

/// Ranks that step alone between the outer steps; `Outer::by_default` is the paper's.
std::string beside_one(int rank, ShmGroup group, Outer outer, std::int64_t sync_every) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(rank);  // rank 0's go to all
  DiLoCoOptions options{.sync_every = sync_every};
  MakeOptimizer of_reference = nesterov(0.7, 0.9);
  if (outer == Outer::nesterov) options.outer_optimizer = of_reference = nesterov(0.4, 0.8);
  if (outer == Outer::adam)
    options.outer_optimizer = of_reference = optimizer_maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01));
  DiLoCo diloco(net->parameters(), process_group, options);
  auto inner = make_inner(net);
  Reference reference(group.world_size(), of_reference);
  for (int step = 0; step < 12; ++step) {
    inner->zero_grad();
    loss_of(net->forward(batch_of(rank, step))).backward();
    inner->step();
    const at::Tensor gradient = net->parameters()[0].grad();
    if (step == 7) {  // a schedule's rate
      diloco.outer().param_groups()[0].options().set_lr(0.3);
      reference.outer->param_groups()[0].options().set_lr(0.3);
    }
    const bool synced = diloco.step();
    require(synced == ((step + 1) % sync_every == 0), "when an outer step is made");
    require(net->parameters()[0].grad().is_same(gradient), "the inner gradients were lost");
    for (int worker = 0; worker < group.world_size(); ++worker) reference.inner_step(worker, {batch_of(worker, step)});
    if (synced) reference.outer_step();
    require_equal(net, reference.replicas[std::size_t(rank)], fmt::format("step {}", step));
    require(diloco.inner_steps() == (step + 1) % sync_every, "the count of inner steps");
  }
  return "went through";
}

/// With a rate of 1 and no momentum an outer step after each inner one is an average of the parameters.
std::string averages(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(0), averaged = make_net(0);
  DiLoCo diloco(net->parameters(), process_group, {.sync_every = 1, .outer_optimizer = nesterov(1, 0)});
  torch::optim::SGD inner(net->parameters(), 0.1), of_averaged(averaged->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    for (auto* one : {&net, &averaged}) {
      (*one)->zero_grad();
      loss_of((*one)->forward(batch_of(rank, step))).backward();
    }
    inner.step();
    of_averaged.step();
    require(diloco.step(), "no outer step");
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      std::vector<at::Tensor> sum{averaged->parameters()[i].detach()};
      process_group->allreduce(sum)->wait();
      averaged->parameters()[i].div_(group.world_size());
      require_close(net->parameters()[i].detach(), averaged->parameters()[i].detach(), "the average", 1e-14);
    }
  }
  return "went through";
}

/// Two hosts of two ranks: each host's ranks are one worker by DDP, the outer step goes over all ranks, or over a column.
std::string two_levels(int rank, ShmGroup group, bool columns) {
  at::set_num_threads(1);
  auto world = init_process_group(group, rank);
  auto host = shoal::split(world, rank / 2, 0), column = shoal::split(world, rank % 2, 0);
  torch::nn::Sequential net = make_net(rank);
  DistributedDataParallel<torch::nn::Sequential> ddp(net, host);
  DiLoCo diloco(net->parameters(), columns ? column : world, {.sync_every = 3});  // from now on all have rank 0's
  auto inner = make_inner(net);
  Reference reference(2, nesterov(0.7, 0.9));
  for (int step = 0; step < 9; ++step) {
    inner->zero_grad();
    loss_of(ddp.forward(batch_of(rank, step))).backward();
    inner->step();
    const bool synced = diloco.step();
    for (int worker : {0, 1})
      reference.inner_step(worker, {batch_of(2 * worker, step), batch_of(2 * worker + 1, step)});
    if (synced) reference.outer_step(columns ? 1 : 2);
    require_equal(net, reference.replicas[std::size_t(rank / 2)], fmt::format("step {}", step));
  }
  return "went through";
}

/// Differences in bfloat16 come near; all ranks still get the same bits. The masters of half parameters take small steps.
std::string half_types(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Linear net(4, 4);
  net->to(at::kBFloat16);
  FloatMasters masters(net->parameters());
  DiLoCo diloco(masters.parameters(), process_group,
                {.sync_every = 2, .outer_optimizer = nesterov(1, 0), .type = at::kBFloat16});
  masters.give_parameters();
  const std::vector<at::Tensor> begin{masters.parameters()[0].detach().clone(),
                                      masters.parameters()[1].detach().clone()};
  for (int step = 0; step < 20; ++step) {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& master : masters.parameters()) master.sub_(1e-4 * (1 + rank));
    if (diloco.step()) masters.give_parameters();
  }
  for (std::size_t i = 0; i < 2; ++i) {
    // Two ranks: 1.5e-4 a step on average, of which bfloat16 keeps eight bits.
    const at::Tensor moved = masters.parameters()[i].detach() - begin[i];
    require((moved + 20 * 1.5e-4).abs().max().item<float>() < 20 * 1.5e-4 / 100, "how far they have come");
    std::vector<at::Tensor> low{masters.parameters()[i].detach().clone()}, high{low[0].clone()};
    process_group->allreduce(low, {.reduceOp = c10d::ReduceOp::MIN})->wait();
    process_group->allreduce(high, {.reduceOp = c10d::ReduceOp::MAX})->wait();
    require(torch::equal(low[0], high[0]), "the ranks differ");
    require(torch::equal(net->parameters()[i], masters.parameters()[i].to(at::kBFloat16)), "the rounded copies");
  }
  return "went through";
}

/// Trains to `to` and saves, in files or as a value; what went on without a break is compared.
std::string go_on(int rank, ShmGroup group, std::string folder, int from, int to) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(from);
  DiLoCo diloco(net->parameters(), process_group, {.sync_every = 4});
  torch::optim::SGD inner(net->parameters(), 0.1);  // keeps nothing
  CheckpointParts parts;
  parts.add("model", net, OnRanks::own);
  parts.add("diloco", diloco, *net);
  Checkpoints checkpoints({.folder = folder}, process_group);
  require(checkpoints.load(parts).value_or(0) == from, "the step that was loaded");
  require(diloco.inner_steps() == from % 4, "the inner steps that were loaded");

  torch::nn::Sequential unbroken = make_net(0);
  DiLoCo beside(unbroken->parameters(), process_group, {.sync_every = 4});
  torch::optim::SGD of_unbroken(unbroken->parameters(), 0.1);
  for (int step = 0; step < to; ++step) {
    of_unbroken.zero_grad();
    loss_of(unbroken->forward(batch_of(rank, step))).backward();
    of_unbroken.step();
    beside.step();
    if (step < from) continue;
    inner.zero_grad();
    loss_of(net->forward(batch_of(rank, step))).backward();
    inner.step();
    diloco.step();
    if (step == from + 2) {  // another one goes on with the value, and this one with what it has copied
      DiLoCo other(net->parameters(), process_group, {.sync_every = 4});
      other.load_state_dict(beside.state_dict());
      require(other.inner_steps() == diloco.inner_steps(), "the inner steps of the value");
      for (std::size_t i = 0; i < other.start().size(); ++i) {
        require(torch::equal(other.start()[i], diloco.start()[i]), "the value's start");
        require(!other.start()[i].is_alias_of(beside.start()[i]), "the value's tensors were taken, not copied");
      }
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < other.start().size(); ++i)
        net->parameters()[i].copy_(unbroken->parameters()[i]);  // its constructor had made them rank 0's
    }
  }
  require_equal(net, unbroken, fmt::format("from step {} to {}", from, to));
  checkpoints.save(to, parts);
  process_group->barrier()->wait();
  return "went through";
}

std::string refused(int rank, ShmGroup group, int what) {
  auto process_group = init_process_group(group, rank);
  try {
    std::vector<at::Tensor> parameters{torch::ones({2, what == 0 ? 3 + rank : 3})};
    if (what == 1 || (what == 6 && rank == 1)) parameters.clear();
    if (what == 2) parameters.push_back(torch::ones({2}, at::kInt));
    DiLoCo diloco(parameters, process_group,
                  {.sync_every = what == 3 || (what == 7 && rank == 1) ? 0 : 1,
                   .type = what == 4 ? std::optional(at::kInt) : std::nullopt});
    if (what == 8) diloco.set_inner_steps(-2);
    if (what == 5) diloco.load_state_dict({.inner_steps = 1, .start = {torch::ones({3, 3})}, .outer = {}});
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

std::string die_before_outer_step(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(0);
  DiLoCo diloco(net->parameters(), process_group, {.sync_every = 2});
  at::Tensor before;
  try {
    for (int step = 0; step < 4; ++step) {
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& parameter : net->parameters()) parameter.add_(0.1 * (rank + 1));
      before = net->parameters()[0].detach().clone();
      if (rank == 1 && step == 3) std::raise(SIGKILL);
      diloco.step();
    }
  } catch (const PeerDied& error) {
    require(torch::equal(net->parameters()[0], before), "the parameters are not those of the last inner step");
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DiLoCo: the parameters are those of the algorithm in one process, bit for bit, with any outer optimizer") {
  for (int world : {2, 3})
    for (Outer outer : {Outer::by_default, Outer::nesterov, Outer::adam})
      for (std::int64_t sync_every : {1, 4}) {
        INFO(world << " ranks, outer optimizer " << int(outer) << ", every " << sync_every);
        for (auto& said : spawn({.nprocs = world}, beside_one, ShmGroup(world), outer, sync_every))
          CHECK(said == "went through");
      }
}

TEST_CASE("DiLoCo: an outer step with a rate of 1 and without momentum is the mean of the parameters") {
  for (auto& said : spawn({.nprocs = 3}, averages, ShmGroup(3))) CHECK(said == "went through");
}

TEST_CASE("DiLoCo: ranks of a host are one worker by DDP, over all ranks or over a column") {
  for (bool columns : {false, true})
    for (auto& said : spawn({.nprocs = 4}, two_levels, ShmGroup(4), columns)) CHECK(said == "went through");
}

TEST_CASE("DiLoCo: differences may go in a half type, and half parameters step by float copies") {
  for (auto& said : spawn({.nprocs = 2}, half_types, ShmGroup(2))) CHECK(said == "went through");
}

TEST_CASE("DiLoCo: a training goes on from a checkpoint, or from a value, as without a break") {
  const TemporaryFolder folder;
  int from = 0;
  for (const int to : {6, 12, 15}) {
    for (auto& said : spawn({.nprocs = 2}, go_on, ShmGroup(2), folder.path(), from, to)) CHECK(said == "went through");
    from = to;
  }
}

TEST_CASE("DiLoCo: what makes no sense is refused on all ranks, with its value") {
  const char* const words[] = {
      "parameter 0 (Float [2, 4]",
      "DiLoCo of no parameters",
      "parameter 1 is CPUIntType",
      "an outer step every 0 inner steps",
      "differences as Int",
      "a state of 1 inner steps and 1 parameters",
      "of rank 1 differs from that of rank 0: sync_every 1, differences as they are instead of "
      "parameter 0 (Float [2, 3]",
      "of rank 1 differs from that of rank 0: sync_every 0, differences as they are instead of "
      "sync_every 1",
      "set_inner_steps(-2): give the inner steps since, 0 or more"};
  for (int what = 0; what < 9; ++what)
    for (auto& said : spawn({.nprocs = 2}, refused, ShmGroup(2), what))
      CHECK_THAT(said, ContainsSubstring(words[what]));
}

TEST_CASE("float masters: half complex parameters are refused by number, other complex ones are taken themselves") {
  const at::Tensor complex = torch::zeros({2}, at::kComplexFloat);
  CHECK(FloatMasters({complex}).parameters()[0].is_same(complex));
  CHECK_THROWS_WITH(FloatMasters({complex, torch::zeros({2}, at::kComplexHalf)}),
                    ContainsSubstring("parameter 1 is of ComplexHalf") && ContainsSubstring("cast it to ComplexFloat"));
}

TEST_CASE("DiLoCo: when a rank is killed, step() throws PeerDied on the others, and their parameters stay") {
  ShmGroup group(2);
  std::vector<Process<std::string>> processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.emplace_back(ProcessOptions{.name = fmt::format("rank{}", rank)}, die_before_outer_step, rank, group);
    processes.back().start();
  }
  CHECK_THAT(processes[0].result(), ContainsSubstring("rank 1") && ContainsSubstring("died"));
  processes[1].join();
  CHECK(processes[1].exitcode() == -SIGKILL);
}

}  // namespace diloco_test
