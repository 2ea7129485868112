// ZeroRedundancyOptimizer and FloatMasters where a program does what cannot go well: refused, and nothing crosses.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/float_masters.h>
#include <shoal/workers/train/join.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace zero_faults_test {

namespace {

using Ddp = DistributedDataParallel<torch::nn::Linear>;

MakeOptimizer sgd(double lr = 0.1) {
  return optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(lr).momentum(0.9));
}

torch::nn::Linear make_net(double fill, at::ScalarType type = at::kDouble) {
  torch::nn::Linear net(6, 6);
  net->to(type);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters()) parameter.fill_(fill);
  return net;
}

/// Two models with an optimizer each, in a Join that rank 0 leaves first. `clips`: the first optimizer clips, the second one
/// comes before it has stepped; otherwise before the first one altogether. Then both, in their order.
std::string out_of_turn(int rank, ShmGroup group, bool clips) {
  auto process_group = init_process_group(group, rank);
  torch::nn::Linear one = make_net(1), other = make_net(2);
  Ddp first(one, process_group), second(other, process_group);
  ZeroRedundancyOptimizer of_first(one->parameters(), sgd(), process_group),
      of_second(other->parameters(), sgd(), process_group);
  Join join({first.joinable(), second.joinable(), of_first, of_second});
  std::string said;
  for (int step = 0; step < 1 + 2 * rank; ++step) {
    for (ZeroRedundancyOptimizer* each : {&of_first, &of_second}) each->zero_grad();
    loss_of(first(batch_of(rank, step))).backward();
    loss_of(second(batch_of(rank, step))).backward();
    if (step == 1) try {
        if (clips) of_first.clip_grad_norm_(1);
        of_second.step();
      } catch (const std::invalid_argument& error) {
        said = error.what();
      }
    of_first.step();
    of_second.step();
  }
  try {
    join.finish();
  } catch (const std::exception& error) {
    return fmt::format("finish: {}", error.what());
  }
  // No one's parameters came to the other: they began apart and went the same way.
  require(one->weight.min().item<double>() < 1.5 && other->weight.max().item<double>() > 1.5, "parameters crossed");
  return said;
}

/// A model, of halves or not, whose optimizer is spread over the ranks, in a Join.
struct Spread {
  Spread(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, bool halves)
      : net(make_net(1, halves ? at::kBFloat16 : at::kDouble)),
        masters(net->parameters()),
        ddp(net, process_group),
        optimizer(masters.parameters(), sgd(), process_group),
        join({ddp.joinable(), optimizer}) {}
  torch::nn::Linear net;
  FloatMasters masters;
  Ddp ddp;
  ZeroRedundancyOptimizer optimizer;
  Join join;
};

/// Rank 0 has ended; the others take the gradient of the bias away before each step.
std::string removed(int rank, ShmGroup group, bool halves) {
  Spread spread(init_process_group(group, rank), halves);
  auto& [net, masters, ddp, optimizer, join] = spread;
  for (int step = 0; step < 1 + 3 * rank; ++step) {
    for (at::Tensor& parameter : net->parameters()) parameter.mutable_grad().reset();
    loss_of(ddp(batch_of(rank, step).to(net->weight.scalar_type()))).backward();
    net->bias.mutable_grad().reset();
    masters.take_gradients();
    optimizer.step();
    masters.give_parameters();
  }
  join.finish();
  require((net->bias == 1).all().item<bool>(), "the bias was stepped");
  require((net->weight != 1).any().item<bool>(), "nothing was stepped");
  return "went through";
}

/// Gradients that a rank has added up in no_sync() when its Join ends stay for the pass that reduces them.
std::string accumulated(int rank, ShmGroup group, bool halves) {
  Spread spread(init_process_group(group, rank), halves);
  auto& [net, masters, ddp, optimizer, join] = spread;
  std::string said;
  {
    const auto no_sync = ddp.no_sync();
    loss_of(ddp(batch_of(rank, 0).to(net->weight.scalar_type()))).backward();
    for (const bool clips : {true, false}) try {
        clips ? void(optimizer.clip_grad_norm_(1)) : optimizer.step();
      } catch (const std::invalid_argument& error) {
        said += error.what() + std::string("; ");
      }
  }
  join.finish();
  require(net->weight.grad().defined(), "the gradient has gone");
  return said;
}

/// Can be written, and not read.
struct WrittenOptions : torch::optim::OptimizerCloneableOptions<WrittenOptions> {
  void serialize(torch::serialize::OutputArchive& archive) const override { archive.write("rate", c10::IValue(0.1)); }
};
struct WrittenOptimizer : torch::optim::Optimizer {
  explicit WrittenOptimizer(const ParameterGroups& groups) : Optimizer(groups, std::make_unique<WrittenOptions>()) {}
  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (const auto& group : param_groups())
      for (const at::Tensor& parameter : group.params())
        if (parameter.grad().defined()) parameter.detach().sub_(0.1 * parameter.grad());
    return {};
  }
};

double written_options(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::nn::Linear net = make_net(1);
  Ddp ddp(net, process_group);
  ZeroRedundancyOptimizer optimizer(
      net->parameters(), [](const ParameterGroups& groups) { return std::make_unique<WrittenOptimizer>(groups); },
      process_group);
  Join join({ddp.joinable(), optimizer});
  for (int step = 0; step < 1 + 3 * rank; ++step) {
    optimizer.zero_grad();
    loss_of(ddp(batch_of(rank, step))).backward();
    optimizer.step();
  }
  join.finish();
  return net->weight.sum().item<double>() + net->bias.sum().item<double>();
}

std::string consolidate_after_failure(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::nn::Linear net = make_net(1);
  int fails = 0;
  ZeroRedundancyOptimizer optimizer(
      net->parameters(),
      [&fails](const ParameterGroups& groups) -> std::unique_ptr<torch::optim::Optimizer> {
        if (fails > 0 && --fails == 0) throw std::runtime_error("no room for it");
        return sgd()(groups);
      },
      process_group);
  const auto step = [&] {
    for (at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter.detach());
    optimizer.step();
  };
  step();
  std::string said;
  fails = rank == 0 ? 2 : 0;
  try {
    optimizer.consolidate();
  } catch (const std::exception& error) {
    said = error.what();
  }
  fails = 0;
  step();
  const auto whole = optimizer.consolidate();
  if (rank != 0) return said;
  for (const at::Tensor& parameter : net->parameters()) {
    const auto& state = static_cast<torch::optim::SGDParamState&>(*whole->state().at(parameter.unsafeGetTensorImpl()));
    require(torch::allclose(state.momentum_buffer(), torch::full_like(parameter.detach(), 1.9)), "an earlier state");
  }
  return said;
}

std::string added(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::nn::Linear net = make_net(1);
  net->to(at::kBFloat16);
  FloatMasters masters(net->parameters());
  ZeroRedundancyOptimizer optimizer(masters.parameters(), sgd(), process_group);
  std::string said;
  const at::Tensor leaf = torch::ones({3}).set_requires_grad(true);
  for (const std::vector<at::Tensor>& group_of : {std::vector{net->weight}, std::vector{leaf * 2}}) try {
      optimizer.add_param_group(torch::optim::OptimizerParamGroup(group_of));
    } catch (const std::invalid_argument& error) {
      said += error.what() + std::string("; ");
    }
  require(optimizer.local().param_groups().size() == 1, "a group that was refused is there");
  return said;
}

std::string none_trained(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  PeriodicAverager averager(process_group, {.period = 1, .warm_up = 0});
  try {
    averager.average({torch::full({2}, double(rank))});
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("Join: an optimizer that comes before an earlier one's turn has ended is refused, and nothing crosses") {
  for (const bool clips : {true, false})
    for (const std::string& said : spawn({.nprocs = 2}, out_of_turn, ShmGroup(2), clips)) {
      CAPTURE(clips);
      if (!said.empty())  // rank 0 has ended by then
        CHECK_THAT(said, StartsWith("joinable 4 of a Join comes before 3 in a step"));
    }
}

TEST_CASE("Join: a gradient that is taken away is not stepped on ranks without a batch, either") {
  for (const bool halves : {false, true})
    for (const std::string& said : spawn({.nprocs = 2}, removed, ShmGroup(2), halves)) CHECK(said == "went through");
}

TEST_CASE("Join: what was added up in no_sync() stays at its end, and an optimizer's call there is refused") {
  for (const bool halves : {false, true})
    for (const std::string& said : spawn({.nprocs = 2}, accumulated, ShmGroup(2), halves))
      CHECK_THAT(said, ContainsSubstring("clip_grad_norm_() of a Join behind a pass in no_sync()") &&
                           ContainsSubstring("step() of a Join behind a pass in no_sync()"));
}

TEST_CASE("Join: options that can be written and not read stay each rank's own, and end no Join") {
  const std::vector<double> sums = spawn({.nprocs = 2}, written_options, ShmGroup(2));
  CHECK(sums[0] == sums[1]);
  CHECK(sums[0] != 42);  // as it began
}

TEST_CASE("ZeroRedundancyOptimizer: a consolidate() that fails on its root leaves nothing for the next one") {
  const auto said = spawn({.nprocs = 2}, consolidate_after_failure, ShmGroup(2));
  CHECK(said[0] == "no room for it");
  CHECK_THAT(said[1], ContainsSubstring("rank 0 cannot make its optimizer"));
}

TEST_CASE("ZeroRedundancyOptimizer: a group has to be of leaves, and of nothing that is there as a float copy") {
  for (const std::string& said : spawn({.nprocs = 2}, added, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("parameter 0 of the group is in the optimizer already; ") &&
                         ContainsSubstring("tensor 0 of the group is no parameter"));
}

TEST_CASE("comm hooks: PeriodicAverager refuses a list of which nothing is trained") {
  for (const std::string& said : spawn({.nprocs = 2}, none_trained, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("none of the tensors requires a gradient"));
}

TEST_CASE("FloatMasters: what libtorch makes of a copy is none, and gives the original up") {
  at::Tensor half = torch::ones({3}, at::kBFloat16).set_requires_grad(true);
  const c10::weak_intrusive_ptr<c10::TensorImpl> watched(half.getIntrusivePtr());
  at::Tensor detached;
  {
    FloatMasters masters({half});
    detached = masters.parameters()[0].detach();
  }
  half.reset();
  CHECK(watched.expired());
  CHECK(detached.defined());
}

}  // namespace zero_faults_test
