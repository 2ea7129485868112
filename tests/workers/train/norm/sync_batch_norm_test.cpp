// SyncBatchNorm beside a batch norm of one process with the whole batch.
#include <shoal/workers/train/sync_batch_norm.h>

#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/process_group.h>
#include <torch/torch.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace sync_batch_norm_test {

namespace {

constexpr int kChannels = 4;

/// A rank's part of a batch of `sizes` (without the first), with a mean far from zero.
at::Tensor part_of(int rank, int step, std::int64_t samples, std::vector<std::int64_t> sizes, at::ScalarType type) {
  torch::manual_seed(77 + 10 * step + rank);
  sizes.insert(sizes.begin(), samples);
  return (torch::randn(sizes, at::kDouble) * (1 + rank) + 30).to(type);
}

/// Outputs, gradients and running values of some steps, with batches of the sizes that `samples` says.
std::string beside_one_process(int rank, ShmGroup group, std::vector<std::int64_t> sizes,
                               std::vector<std::int64_t> samples, at::ScalarType type, bool affine, bool cumulative,
                               double tolerance) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  const int world = group.world_size();
  SyncBatchNorm norm(SyncBatchNormOptions{
      .num_features = kChannels, .momentum = cumulative ? std::nullopt : std::optional<double>(0.3), .affine = affine});
  norm->set_group(process_group);
  norm->to(type);
  // Its numbers are looked at in double: what differs is SyncBatchNorm's own loss.
  torch::nn::BatchNorm2d whole(torch::nn::BatchNorm2dOptions(kChannels)
                                   .momentum(cumulative ? std::nullopt : std::optional<double>(0.3))
                                   .affine(affine));
  whole->to(at::kDouble);
  if (affine) {
    norm->weight.detach().copy_(torch::arange(1, kChannels + 1));
    norm->bias.detach().copy_(torch::arange(kChannels));
    whole->weight.detach().copy_(norm->weight.detach());
    whole->bias.detach().copy_(norm->bias.detach());
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<at::Tensor> parts;
    for (int other = 0; other < world; ++other)
      parts.push_back(part_of(other, step, samples[std::size_t(other)], sizes, type).to(at::kDouble));
    at::Tensor own = parts[std::size_t(rank)].to(type).clone().set_requires_grad(true);
    at::Tensor joint = torch::cat(parts).set_requires_grad(true);
    at::Tensor flat = joint.dim() == 4 ? joint : joint.reshape({joint.size(0), kChannels, -1, 1});
    const at::Tensor output = norm->forward(own), wanted = whole->forward(flat).reshape(joint.sizes());
    std::int64_t before = 0;
    for (int other = 0; other < rank; ++other) before += samples[std::size_t(other)];
    const auto mine = [&](const at::Tensor& of_all) { return of_all.narrow(0, before, own.size(0)); };
    const auto same = [&](const at::Tensor& got, const at::Tensor& want, const char* what) {
      if (want.numel() == 0) return require(got.sizes() == want.sizes(), what);
      require_close(got.to(at::kDouble), want, fmt::format("step {}, {}", step, what), tolerance);
    };
    same(output.detach(), mine(wanted).detach(), "output");
    norm->zero_grad();
    whole->zero_grad();
    // Each element counts in another way, so that the statistics' share of the gradient does not vanish.
    const auto weigh = [](const at::Tensor& values, const at::Tensor& of) {
      return (values.to(at::kDouble).sin() * of.detach().to(at::kDouble)).sum();
    };
    weigh(output, own).backward();
    weigh(wanted, joint).backward();
    same(own.grad(), mine(joint.grad()), "gradient of the input");
    if (affine) {
      std::vector<at::Tensor> of_weight{norm->weight.grad().to(at::kDouble)};
      process_group->allreduce(of_weight)->wait();
      same(of_weight[0], whole->weight.grad(), "sum of the gradients of weight");
      std::vector<at::Tensor> of_bias{norm->bias.grad().to(at::kDouble)};
      process_group->allreduce(of_bias)->wait();
      same(of_bias[0], whole->bias.grad(), "sum of the gradients of bias");
    }
    same(norm->running_mean, whole->running_mean, "running mean");
    same(norm->running_var, whole->running_var, "running variance");
    require(norm->num_batches_tracked.item<std::int64_t>() == step + 1, "counted steps");
  }
  // In evaluation a rank is alone.
  if (rank == 0) {
    norm->eval();
    whole->eval();
    const at::Tensor x = part_of(0, 9, 3, sizes, type);
    const at::Tensor flat = x.to(at::kDouble).reshape({3, kChannels, -1, 1});
    require_close(norm->forward(x).detach().to(at::kDouble), whole->forward(flat).reshape(x.sizes()).detach(),
                  "evaluation", tolerance);
  }
  return "went through";
}

void check(std::vector<std::int64_t> sizes, std::vector<std::int64_t> samples, at::ScalarType type = at::kDouble,
           bool affine = true, bool cumulative = false, double tolerance = 1e-11) {
  const int world = int(samples.size());
  for (auto& said : spawn({.nprocs = world}, beside_one_process, ShmGroup(world), sizes, samples, type, affine,
                          cumulative, tolerance))
    CHECK(said == "went through");
}

}  // namespace

TEST_CASE("SyncBatchNorm: outputs, gradients and running values are those of one process with the whole batch") {
  check({kChannels}, {5, 5});
  check({kChannels, 6}, {3, 3, 3});
  check({kChannels, 2, 3}, {4, 4}, at::kDouble, false);
  check({kChannels, 2, 3}, {4, 4}, at::kDouble, true, true);
}

TEST_CASE("SyncBatchNorm: batches may differ in size, and be empty or of one sample") {
  check({kChannels}, {7, 1, 3});
  check({kChannels, 3, 2}, {0, 4});
  check({kChannels}, {1, 1});
}

TEST_CASE("SyncBatchNorm: floats lose no more than floats do") {
  check({kChannels, 3, 3}, {8, 8}, at::kFloat, true, false, 2e-4);
}

namespace {

struct HasMembersImpl : torch::nn::Module {
  HasMembersImpl()
      : norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        own(register_module("own", SyncBatchNorm(SyncBatchNormOptions{.num_features = 6}))) {}
  torch::nn::BatchNorm1d norm;
  SyncBatchNorm own;
};

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : inner(register_module(
            "inner", torch::nn::Sequential(torch::nn::Tanh(),
                                           torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(6).eps(1e-3))))) {}
  at::Tensor forward(const at::Tensor& x) { return inner->forward(x); }
  torch::nn::Sequential inner;
};
TORCH_MODULE(Block);

std::string convert(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  const auto make = [] {
    return torch::nn::Sequential(torch::nn::Linear(6, 6), torch::nn::BatchNorm1d(6), Block(),
                                 SyncBatchNorm(SyncBatchNormOptions{.num_features = 6}), torch::nn::Linear(6, 2));
  };
  torch::nn::Sequential net = make(), reference = make();
  net->to(at::kDouble);
  reference->to(at::kDouble);
  copy_values(*net, *reference);
  const std::vector<at::Tensor> before = net->parameters();
  convert_sync_batch_norm(*net, process_group);
  const std::vector<at::Tensor> after = net->parameters();
  require(before.size() == after.size(), "as many parameters");
  for (std::size_t i = 0; i < before.size(); ++i) require(before[i].is_same(after[i]), "the parameters themselves");
  std::ostringstream shown;
  shown << *net;
  require(shown.str().find("BatchNorm1d") == std::string::npos, "a batch norm was left: " + shown.str());
  require(shown.str().find("shoal::SyncBatchNorm(6, eps=0.001") != std::string::npos, shown.str());
  std::vector<at::Tensor> parts;
  for (int other = 0; other < group.world_size(); ++other) parts.push_back(batch_of(other, 0));
  const at::Tensor wanted = reference->forward(torch::cat(parts)), got = net->forward(batch_of(rank, 0));
  require_close(got.detach(), wanted.detach().narrow(0, 8 * rank, 8), "outputs of the converted module", 1e-11);
  net->eval();  // goes to the modules that came new
  require(!net->children()[1]->is_training(), "a converted module is not among the children");

  auto members = std::make_shared<HasMembersImpl>();
  try {
    convert_sync_batch_norm(*members, process_group);
    return "a member was converted";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("SyncBatchNorm: a module's batch norms are converted, and those that cannot be are named") {
  for (auto& said : spawn({.nprocs = 2}, convert, ShmGroup(2)))
    CHECK_THAT(said,
               ContainsSubstring("convert_sync_batch_norm: norm cannot") && ContainsSubstring("shoal::SyncBatchNorm"));
}

namespace {

std::string frozen_in_part(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  for (const bool weight : {false, true})
    for (const bool bias : {false, true}) {
      torch::nn::BatchNorm1d norm(6);
      norm->weight.set_requires_grad(weight);
      norm->bias.set_requires_grad(bias);
      torch::nn::Sequential net(torch::nn::Linear(6, 6), norm);
      convert_sync_batch_norm(*net, process_group);
      const auto parameters = net->named_parameters();
      require(parameters["1.weight"].requires_grad() == weight, "whether the weight is trained");
      require(parameters["1.bias"].requires_grad() == bias, "whether the bias is trained");
    }
  return "went through";
}

/// Is refused on all ranks, and the group goes on.
std::string twice_derived(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  SyncBatchNorm norm(SyncBatchNormOptions{.num_features = 6});
  norm->set_group(process_group);
  norm->to(at::kDouble);
  const at::Tensor input = batch_of(rank, 0).set_requires_grad(true);
  std::string said = "went through";
  try {
    torch::autograd::grad({norm->forward(input).pow(2).sum()}, {input}, {}, std::nullopt, /*create_graph=*/true);
  } catch (const std::logic_error& error) {
    said = error.what();
  }
  norm->forward(input).pow(2).sum().backward();
  require(input.grad().defined(), "a gradient afterwards");
  return said;
}

/// Its forward() takes whatever the containers hold.
struct ListedImpl : torch::nn::Module {
  ListedImpl()
      : shared(torch::nn::BatchNorm1d(6)),
        list(register_module("list", torch::nn::ModuleList(torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 6), shared,
                                                           Block(), shared))),
        dict(register_module("dict", torch::nn::ModuleDict())) {
    dict->update({{"norm", torch::nn::BatchNorm1d(6).ptr()}, {"linear", torch::nn::Linear(6, 6).ptr()}});
    to(at::kDouble);
  }
  static at::Tensor apply(torch::nn::Module& module, const at::Tensor& x) {
    if (auto* sync = module.as<SyncBatchNorm>()) return sync->forward(x);
    if (auto* norm = module.as<torch::nn::BatchNorm1d>()) return norm->forward(x);
    if (auto* block = module.as<Block>()) return block->forward(x);
    return module.as<torch::nn::Linear>()->forward(x);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& module : *list) x = apply(*module, x);
    for (const auto& item : *dict) x = apply(*item.value(), x);
    return apply(*dict["norm"], apply(*list[2], x));
  }
  torch::nn::BatchNorm1d shared;
  torch::nn::ModuleList list;
  torch::nn::ModuleDict dict;
};
TORCH_MODULE(Listed);

std::string convert_lists(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Listed net, reference;
  copy_values(*net, *reference);
  const std::vector<at::Tensor> before = net->parameters();
  convert_sync_batch_norm(*net, process_group);
  const std::vector<at::Tensor> after = net->parameters();
  require(before.size() == after.size(), "as many parameters");
  for (std::size_t i = 0; i < before.size(); ++i) require(before[i].is_same(after[i]), "the parameters themselves");
  for (const auto& module : net->modules())
    require(!module->as<torch::nn::BatchNorm1d>(), "a batch norm was left among the children");
  require(net->list[2] == net->list[4], "what was one module in two places is one");
  require(net->list[2] == net->list->named_children()["2"], "list and children are apart");
  require(net->dict["norm"] == net->dict->named_children()["norm"], "dict and children are apart");
  std::vector<at::Tensor> parts;
  for (int other = 0; other < group.world_size(); ++other) parts.push_back(batch_of(other, 0));
  const at::Tensor wanted = reference->forward(torch::cat(parts)), got = net->forward(batch_of(rank, 0));
  require_close(got.detach(), wanted.detach().narrow(0, 8 * rank, 8), "outputs of the converted module", 1e-10);
  net->eval();
  require(!net->list[0]->is_training() && !net->dict["norm"]->is_training(), "eval() goes past a converted module");
  reference->eval();
  require_close(net->forward(parts[0]).detach(), reference->forward(parts[0]).detach(), "evaluation", 1e-10);
  return "went through";
}

/// A list that has a member of its own besides what it lists.
struct OwnListImpl : torch::nn::ModuleListImpl {
  OwnListImpl() : norm(register_module("norm", torch::nn::BatchNorm1d(6))) { push_back(torch::nn::BatchNorm1d(6)); }
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(OwnList);

std::string own_list(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  OwnList list;
  try {
    convert_sync_batch_norm(*list, process_group);
    return "a member was converted";
  } catch (const std::invalid_argument& error) {
    require(list[0]->as<torch::nn::BatchNorm1d>(), "something was converted nevertheless");
    return error.what();
  }
}

/// More than a batch norm: as one it would lose its gain.
struct GainedNormImpl : torch::nn::BatchNorm1dImpl {
  GainedNormImpl() : torch::nn::BatchNorm1dImpl(6), gain(register_parameter("gain", torch::ones({1}))) {}
  at::Tensor gain;
};
TORCH_MODULE(GainedNorm);

std::string derived_norm(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::nn::ModuleList list;
  list->push_back(GainedNorm());
  try {
    convert_sync_batch_norm(*list, process_group);
    return "a derived class was converted";
  } catch (const std::invalid_argument& error) {
    require(list->parameters().size() == 3, "a parameter has gone");
    return error.what();
  }
}

}  // namespace

TEST_CASE("SyncBatchNorm: a class derived from a batch norm is refused by name, in a list as well") {
  CHECK_THAT(spawn({.nprocs = 1}, derived_norm, ShmGroup(1))[0], ContainsSubstring("0 cannot"));
}

TEST_CASE("SyncBatchNorm: batch norms in a ModuleList or ModuleDict are converted, in their own order as well") {
  for (auto& said : spawn({.nprocs = 2}, convert_lists, ShmGroup(2))) CHECK(said == "went through");
  CHECK_THAT(spawn({.nprocs = 1}, own_list, ShmGroup(1))[0],
             ContainsSubstring("convert_sync_batch_norm: norm cannot") && ContainsSubstring("ModuleList"));
}

TEST_CASE("SyncBatchNorm: what of a batch norm is frozen stays frozen when it is converted") {
  for (auto& said : spawn({.nprocs = 1}, frozen_in_part, ShmGroup(1))) CHECK(said == "went through");
}

TEST_CASE("SyncBatchNorm: gradients of gradients are refused, since they would be wrong") {
  for (auto& said : spawn({.nprocs = 2}, twice_derived, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("create_graph"));
}

}  // namespace sync_batch_norm_test
