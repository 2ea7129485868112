// DDP: gradients that libtorch makes where they are reduced, and other tensors that it makes there instead.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace ddp_placed_test {

namespace {

constexpr std::int64_t kWidth = 128;

/// Two weights of one size, which with a batch of kWidth is also that of activations and their gradients; one that is
/// used twice; a small one.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(3);
    first = register_module("first", torch::nn::Linear(64, kWidth));
    second = register_module("second", torch::nn::Linear(kWidth, kWidth));
    third = register_module("third", torch::nn::Linear(kWidth, kWidth));
    last = register_module("last", torch::nn::Linear(kWidth, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner = torch::relu(second->forward(torch::relu(first->forward(x))));
    return last->forward(torch::relu(third->forward(torch::relu(third->forward(inner)))));
  }
  std::vector<at::Tensor> large() const { return {first->weight, second->weight, third->weight}; }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

/// Notes where gradients lie when they come to their parameters.
struct Births {
  explicit Births(const std::vector<at::Tensor>& watched) : at(watched.size()), parameters(watched) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i].register_hook([this, i](const at::Tensor& gradient) { at[i] = gradient.const_data_ptr(); });
  }
  std::size_t in_place() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      count += parameters[i].grad().defined() && parameters[i].grad().const_data_ptr() == at[i];
    return count;
  }
  std::vector<const void*> at;
  std::vector<at::Tensor> parameters;
};

std::vector<std::size_t> made_in_place(int rank, ShmGroup group, std::int64_t batch) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  DistributedDataParallel<Net> ddp(net, process_group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const Births births(net->large());
  std::vector<std::size_t> counts;
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    ddp.forward(torch::randn({batch, 64})).pow(2).mean().backward();
    counts.push_back(births.in_place());
    for (const at::Tensor& parameter : net->parameters())
      require(is_shared(parameter.grad()), "a gradient is not in the heap");
    optimizer.step();
  }
  return counts;
}

/// Tensors that somebody keeps, and what they have to hold.
struct Kept {
  void keep(const at::Tensor& tensor) { tensors.emplace_back(tensor, tensor.detach().clone()); }
  void check(const std::string& what) const {
    for (const auto& [tensor, copy] : tensors) require(tensor.equal(copy), what + ": a kept tensor has changed");
  }
  void drop(std::size_t count) {
    tensors.erase(tensors.begin(), tensors.begin() + std::ptrdiff_t(std::min(count, tensors.size())));
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;
};

/// Behind DDP's own hook, which has looked at the gradient by then.
struct KeepsInput final : torch::autograd::FunctionPostHook {
  explicit KeepsInput(Kept& kept) : kept(kept) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    kept.keep(inputs.at(0));
    return outputs;
  }
  Kept& kept;
};

/// How many inputs were kept.
std::size_t keep_inputs(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  DistributedDataParallel<Net> ddp(net, process_group);
  Kept kept;
  const auto node = torch::autograd::impl::grad_accumulator(net->second->weight);
  for (int step = 0; step < 8; ++step) {
    net->zero_grad();
    torch::manual_seed(10 * step + rank);
    ddp.forward(torch::randn({2, 64})).pow(2).mean().backward();
    kept.check(fmt::format("step {}", step));
    if (step == 4) node->add_post_hook(std::make_unique<KeepsInput>(kept));
  }
  return kept.tensors.size();
}

/// The gradient of the parameter is a view of what came to a tensor before it.
struct TurnedImpl : torch::nn::Module {
  TurnedImpl() { weight = register_parameter("weight", torch::randn({kWidth, kWidth})); }
  at::Tensor forward(const at::Tensor& x, Kept* kept) {
    const at::Tensor turned = weight.t();
    if (kept) turned.register_hook([kept](const at::Tensor& gradient) { kept->keep(gradient); });
    return x.mm(turned).pow(2).mean();
  }
  at::Tensor weight;
};
TORCH_MODULE(Turned);

std::size_t keep_bases(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Turned net;
  DistributedDataParallel<Turned> ddp(net, process_group);
  const Births births({net->weight});
  Kept kept;
  std::size_t in_place = 0;
  for (int step = 0; step < 12; ++step) {
    net->zero_grad();
    torch::manual_seed(10 * step + rank);
    ddp.forward(torch::randn({2, kWidth}), step >= 6 ? &kept : nullptr).backward();
    kept.check(fmt::format("step {}", step));
    in_place += births.in_place();
  }
  require(kept.tensors.size() == 6, "not all were kept");
  return in_place;
}

struct Trained {
  std::vector<std::vector<at::Tensor>> gradients;  // after each step
  std::size_t in_place = 0;
};

/// Steps that seldom are like the last one, the same on all ranks. `asks`: by a hook, which only the Reducer calls.
Trained train(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::uint64_t seed, int steps, bool asks) {
  Net net;
  std::mt19937_64 random(seed);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  const std::int64_t bucket_bytes = one_in(2) ? 25 << 20 : 70 << 10;
  DistributedDataParallel<Net> ddp({.bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes}, net,
                                   process_group);
  if (asks) ddp.register_comm_hook(all_reduce_hook(process_group));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
  const Births births(net->large());
  Kept kept;
  std::vector<at::Tensor> gradients_had;
  bool hook_keeps = false, hook_makes = false;
  for (at::Tensor parameter : net->large())
    parameter.register_hook([&](const at::Tensor& gradient) {
      if (hook_makes) kept.keep(torch::rand({kWidth, kWidth}));
      if (hook_keeps) kept.keep(gradient);
    });
  Trained trained;
  int batches = 0;
  at::Tensor last_gradient;  // an alias, which the graph saves
  const auto loss = [&](std::int64_t batch) {
    torch::manual_seed(100 * process_group->getRank() + batches++);
    const at::Tensor of = ddp.forward(torch::randn({batch, 64})).pow(2).mean();
    return last_gradient.defined() ? of + (last_gradient * net->second->weight).sum() : of;
  };
  const auto forget = [&](unsigned how) {
    if (how < 2) optimizer.zero_grad(/*set_to_none=*/how == 0);
    if (how == 3) net->zero_grad(/*set_to_none=*/false);  // by another tensor of the same memory
  };
  const bool calm = one_in(2);    // long rows of equal steps between the others
  const bool greedy = one_in(3);  // something lies in a gradient's place in each step, until nothing is placed any more
  for (int step = 0; step < steps; ++step) {
    const bool odd = !calm || one_in(5);
    const std::int64_t batch = odd && one_in(3) ? 3 : kWidth;
    const unsigned before = odd ? unsigned(random() % 4) : 0, between = odd && one_in(3) ? unsigned(random() % 4) : 2;
    hook_makes = odd && one_in(4);
    hook_keeps = odd && one_in(6);
    forget(before);
    if (odd && one_in(5)) {
      const auto local = ddp.no_sync();
      loss(batch).backward();
    }
    if (odd && one_in(8)) gradients_had.push_back(net->second->weight.grad());  // changes, and may be the view
    last_gradient.reset();
    if (odd && between == 2 && one_in(3) && net->second->weight.grad().defined())
      last_gradient = net->second->weight.grad().detach();
    at::Tensor of = loss(batch);
    if (odd && one_in(6)) of = of + loss(batch);
    forget(between);
    if (greedy || (odd && one_in(4)))  // of the same graph: the program's own gradients, of the same sizes
      for (const at::Tensor& own : torch::autograd::grad({of}, net->large(), {}, /*retain_graph=*/true)) kept.keep(own);
    const bool creates_graph = odd && one_in(7);
    of.backward({}, creates_graph, creates_graph);
    trained.in_place += births.in_place();
    std::vector<at::Tensor>& gradients = trained.gradients.emplace_back();
    for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad().detach().clone());
    if (creates_graph) net->zero_grad(/*set_to_none=*/true);
    kept.check(fmt::format("step {}", step));
    optimizer.step();
    kept.check(fmt::format("step {}, after the optimizer", step));
    if (one_in(3)) kept.drop(random() % 5);
    if (one_in(4)) gradients_had.clear();
  }
  return trained;
}

/// In how many places gradients were made.
std::size_t compare(int rank, ShmGroup group, std::uint64_t seed, int steps, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  const Trained direct = train(process_group, seed, steps, false), asked = train(process_group, seed, steps, true);
  for (std::size_t step = 0; step < direct.gradients.size(); ++step)
    for (std::size_t i = 0; i < direct.gradients[step].size(); ++i) {
      const at::Tensor &a = direct.gradients[step][i], &b = asked.gradients[step][i];
      require(a.equal(b), fmt::format("gradient {} of step {}: {} apart", i, step, (a - b).abs().max().item<float>()));
    }
  return direct.in_place;
}

}  // namespace

TEST_CASE("DDP placed: from the third step on large gradients are made where they are reduced") {
  for (const std::int64_t batch : {std::int64_t(2), kWidth})
    for (const auto& counts : spawn({.nprocs = 2}, made_in_place, ShmGroup(2), batch)) {
      INFO("batches of " << batch);
      // A gradient of two uses is a sum, which is made in the first one's memory.
      CHECK(counts == std::vector<std::size_t>{0, 0, 3, 3, 3, 3});
    }
}

TEST_CASE("DDP placed: what a hook behind DDP's own keeps stays") {
  for (const std::size_t kept : spawn({.nprocs = 2}, keep_inputs, ShmGroup(2))) CHECK(kept == 3);
}

TEST_CASE("DDP placed: what a hook of a tensor ahead of the parameter keeps stays") {
  for (const std::size_t in_place : spawn({.nprocs = 2}, keep_bases, ShmGroup(2))) CHECK(in_place == 4);
}

TEST_CASE("DDP placed: whatever lies in a gradient's place stays, and gradients are the Reducer's to the bit") {
  const Progress progress = GENERATE(Progress::in_call, Progress::thread);
  std::size_t in_place = 0;
  for (int round = 0; round < test_scale(); ++round)
    for (const int world : {1, 2}) {
      const std::uint64_t seed = std::uint64_t(round) * 10 + std::uint64_t(world);
      INFO("seed " << seed << ", " << world << " ranks");
      for (const std::size_t count : spawn({.nprocs = world}, compare, ShmGroup(world), seed, 50, progress))
        in_place += count;
    }
  CHECK(in_place > 0);
}

}  // namespace ddp_placed_test
