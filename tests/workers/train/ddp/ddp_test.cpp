#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace ddp_test {

namespace {

constexpr int kBatch = 12;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

struct NetImpl : torch::nn::Module {
  NetImpl(int width, bool with_unused)
      : first(register_module("first", torch::nn::Linear(20, width))),
        second(register_module("second", torch::nn::Linear(width, 5))) {
    if (with_unused) unused = register_module("unused", torch::nn::Linear(3, 3));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first, second, unused{nullptr};
};
TORCH_MODULE(Net);

at::Tensor input_of(int rank, int step) {
  torch::manual_seed(1000 + 10 * step + rank);
  return torch::randn({kBatch, 20}, at::kDouble);
}
at::Tensor loss_of(const at::Tensor& output) { return output.pow(2).mean(); }

Net make_net(int seed, int width = 300, bool with_unused = false) {
  torch::manual_seed(seed);
  return Net(width, with_unused);
}

std::vector<at::Tensor> values(const Net& net) {
  std::vector<at::Tensor> result;
  for (auto& parameter : net->parameters()) result.push_back(parameter.detach().clone());
  return result;
}

bool equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!torch::equal(a[i], b[i])) return false;
  return true;
}

/// Trains, and checks each step's gradients against those of one process with the batches of all ranks.
std::vector<at::Tensor> train(int rank, ShmGroup group, DistributedDataParallelOptions options) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(rank);  // other parameters on each rank: rank 0's have to win
  DistributedDataParallel<Net> ddp(options, net, process_group);
  Net reference = make_net(0);
  require(equal(values(net), values(reference)), "the ranks do not start with rank 0's parameters");
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD reference_optimizer(reference->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad(/*set_to_none=*/step < 3);  // also after the buckets were rebuilt
    loss_of(ddp.forward(input_of(rank, step))).backward();
    reference_optimizer.zero_grad();
    std::vector<at::Tensor> joint;
    for (int other = 0; other < group.world_size(); ++other) joint.push_back(input_of(other, step));
    loss_of(reference->forward(torch::cat(joint))).backward();
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      at::Tensor gradient = net->parameters()[i].grad();
      require(torch::allclose(gradient, reference->parameters()[i].grad(), 1e-9, 1e-12),
              fmt::format("gradient {} of step {} is not that of the joint batch", i, step));
      // Also after the buckets were rebuilt, which happens before the second step.
      require(!options.gradient_as_bucket_view || is_shared(gradient), "the gradients are not in the heap");
    }
    optimizer.step();
    reference_optimizer.step();
  }
  return values(net);
}

}  // namespace

TEST_CASE("DDP: gradients are those of the joint batch, in the heap, and the ranks stay equal") {
  for (int world : {1, 2, 3})
    for (std::int64_t bucket_bytes : {25 << 20, 1000})
      for (bool views : {true, false}) {
        INFO(world << " ranks, buckets of " << bucket_bytes << " bytes");
        DistributedDataParallelOptions options{
            .bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes / 2, .gradient_as_bucket_view = views};
        auto parameters = spawn({.nprocs = world}, train, ShmGroup(world), options);
        for (auto& of_rank : parameters) CHECK(equal(of_rank, parameters[0]));
      }
}

namespace {

/// Layers of one shape: their gradients fit into one another's places.
struct TwoLikeImpl : torch::nn::Module {
  explicit TwoLikeImpl(bool tied) : second(register_module("second", tied ? first : torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(4, 4))};
  torch::nn::Linear second;
};
TORCH_MODULE(TwoLike);

std::string differ(int rank, ShmGroup group, int about) {
  auto process_group = init_process_group(group, rank);
  try {
    if (about == 0) {
      Net net = make_net(0, rank == 1 ? 301 : 300);
      DistributedDataParallel<Net> ddp(net, process_group);
    } else if (about == 1) {
      Net net = make_net(0, 300, rank == 1);
      DistributedDataParallel<Net> ddp(net, process_group);
    } else if (about > 2) {
      TwoLike net(about == 6 && rank == 1);
      if (about == 3) (rank == 1 ? net->first : net->second)->weight.set_requires_grad(false);
      DistributedDataParallelOptions options;
      if (about == 4 && rank == 1) options.sparse = {"second.weight"};
      if (about == 5 && rank == 1) options.delayed = {"first.weight"};
      DistributedDataParallel<TwoLike> ddp(options, net, process_group);
      ddp(torch::ones({2, 4})).sum().backward();
    } else {
      torch::nn::ReLU nothing;
      DistributedDataParallel<torch::nn::ReLU> ddp(nothing, process_group);
    }
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: modules that differ are refused on all ranks, by the parameter's name") {
  for (auto& said : spawn({.nprocs = 3}, differ, ShmGroup(3), 0))
    CHECK_THAT(said,
               ContainsSubstring("the module of rank 1 differs from that of rank 0: first.weight (Double [301, 20]") &&
                   ContainsSubstring("instead of first.weight (Double [300, 20]"));
  for (auto& said : spawn({.nprocs = 3}, differ, ShmGroup(3), 1))
    CHECK_THAT(said, ContainsSubstring("rank 1") && ContainsSubstring("unused.weight") &&
                         ContainsSubstring("instead of nothing more"));
  CHECK_THAT(spawn({.nprocs = 1}, differ, ShmGroup(1), 2)[0],
             ContainsSubstring("without parameters that require gradients"));
}

TEST_CASE("DDP: ranks that would reduce the gradients of other parameters are refused, by the parameter's name") {
  const auto refused = [](int about, const std::string& rank_1, const std::string& rank_0) {
    CAPTURE(about);
    for (auto& said : spawn({.nprocs = 2}, differ, ShmGroup(2), about))
      CHECK_THAT(said, ContainsSubstring("the module of rank 1 differs from that of rank 0: " + rank_1) &&
                           ContainsSubstring("instead of " + rank_0));
  };
  const std::string shape = ".weight (Float [4, 4], strides [4, 1], ";
  refused(3, "first" + shape + "frozen)", "first" + shape + "trained)");
  refused(4, "second" + shape + "trained, with sparse gradients)", "second" + shape + "trained)");
  refused(5, "first" + shape + "trained, delayed)", "first" + shape + "trained)");
  refused(6, "second" + shape + "tied to first.weight)", "second" + shape + "trained)");
}

namespace {

/// What it says of options that the second rank alone gives, and which are refused there.
std::string refuse_on_one(int rank, ShmGroup group, bool in_bytes) {
  auto process_group = init_process_group(group, rank);
  Net net = make_net(0, 30, false);
  const auto made = [&](const DistributedDataParallelOptions& options) -> std::string {
    try {
      DistributedDataParallel<Net> ddp(options, net, process_group);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing";
  };
  DistributedDataParallelOptions options;
  if (rank == 1 && in_bytes) options.first_bucket_bytes = -7;
  if (rank == 1 && !in_bytes) options.delayed = {"third.weight"};
  const std::string said = made(options);
  require(made({}) == "nothing", "the next one is made");
  return said;
}

}  // namespace

TEST_CASE("DDP: options that one rank refuses are refused on all, and none waits for it") {
  for (const bool in_bytes : {false, true}) {
    const std::string value = in_bytes ? "-7 bytes" : "third.weight";
    const auto said = spawn({.nprocs = 2}, refuse_on_one, ShmGroup(2), in_bytes);
    CHECK_THAT(said[0], ContainsSubstring("the module of rank 1 differs from that of rank 0: nothing, since rank 1 "
                                          "refuses it: ") &&
                            ContainsSubstring(value));
    CHECK_THAT(said[1], ContainsSubstring(value) && !ContainsSubstring("differs"));
  }
}

namespace {

std::string with_unused(int rank, ShmGroup group, bool find) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(0, 30, true);
  DistributedDataParallel<Net> ddp(DistributedDataParallelOptions{.find_unused_parameters = find}, net, process_group);
  try {
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      loss_of(ddp.forward(input_of(rank, step))).backward();
      require(net->first->weight.grad().defined() && !net->unused->weight.grad().defined(),
              "which gradients there are");
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: a parameter that gets no gradient is named, or allowed for by the option") {
  for (auto& said : spawn({.nprocs = 2}, with_unused, ShmGroup(2), false))
    CHECK_THAT(said, ContainsSubstring("gave no gradient to: unused.weight, unused.bias") &&
                         ContainsSubstring("find_unused_parameters"));
  for (auto& said : spawn({.nprocs = 2}, with_unused, ShmGroup(2), true)) CHECK(said == "went through");
}

namespace {

/// A pass that leaves out a parameter on all ranks is refused by the next forward(); the one after it goes on.
std::string leave_out_once(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(0, 30), reference = make_net(0, 30);
  DistributedDataParallel<Net> ddp(net, process_group);
  for (int step = 0; step < 8; ++step) {
    net->zero_grad();
    if (step == 1 || step == 5) {  // before the Reducer has been left out of it, and after
      ddp.forward(input_of(rank, step));
      net->second->bias.sum().backward();
      try {
        ddp.forward(input_of(rank, step));
        return "a pass without gradients was not refused";
      } catch (const Error& error) {
        if (std::string(error.what()).find("gave no gradient to") == std::string::npos) return error.what();
      }
      net->zero_grad();
    }
    loss_of(ddp.forward(input_of(rank, step))).backward();
    reference->zero_grad();
    for (int other = 0; other < group.world_size(); ++other)
      (loss_of(reference->forward(input_of(other, step))) / group.world_size()).backward();
    require(torch::allclose(net->first->weight.grad(), reference->first->weight.grad(), 1e-9, 1e-12),
            fmt::format("step {}", step));
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: after a pass that was refused for parameters left out, the next one is right") {
  for (auto& said : spawn({.nprocs = 2}, leave_out_once, ShmGroup(2))) CHECK(said == "went through");
}

namespace {

/// The gradients after two batches, of which only the second is reduced, and the parameters' ranks' own.
bool accumulate(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(0, 30), reference = make_net(0, 30);
  DistributedDataParallel<Net> ddp(net, process_group);
  for (int round = 0; round < 3; ++round) {
    net->zero_grad();
    reference->zero_grad();
    {
      auto local = ddp.no_sync();
      loss_of(ddp(input_of(rank, 2 * round))).backward();
    }
    loss_of(reference->forward(input_of(rank, 2 * round))).backward();
    require(torch::equal(net->first->weight.grad(), reference->first->weight.grad()), "no_sync has reduced something");
    loss_of(ddp(input_of(rank, 2 * round + 1))).backward();
    reference->zero_grad();
    for (int other = 0; other < group.world_size(); ++other)
      for (int step : {2 * round, 2 * round + 1})
        (loss_of(reference->forward(input_of(other, step))) / group.world_size()).backward();
    require(torch::allclose(net->first->weight.grad(), reference->first->weight.grad(), 1e-9, 1e-12),
            "the sum of both batches was not reduced");
  }
  return true;
}

struct NormImpl : torch::nn::Module {
  NormImpl()
      : norm(register_module("norm", torch::nn::BatchNorm1d(20))),
        last(register_module("last", torch::nn::Linear(20, 5))) {
    to(at::kDouble);
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x) {
    at::Tensor result = last(norm(x));
    return {result, {result * 2}};
  }
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};

/// The running means before the next step's forward pass and after it has begun.
at::Tensor running_mean(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  auto net = std::make_shared<NormImpl>();
  DistributedDataParallel<NormImpl> ddp(DistributedDataParallelOptions{.find_unused_parameters = true}, net,
                                        process_group);
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    auto [output, more] = ddp.forward(input_of(rank, step) + rank);
    loss_of(more[0]).backward();
  }
  // Each rank has gone one step away from rank 0's: with the momentum of 0.1.
  at::Tensor own = net->norm->running_mean.clone() - 0.1 * (input_of(rank, 3) + rank).mean(0);
  {
    // Without gradients nothing is sent: one rank may evaluate alone.
    torch::NoGradGuard no_grad;
    net->eval();
    if (rank == 0) ddp.forward(input_of(rank, 0));
  }
  return own;
}

/// Rank 0 evaluates alone between a forward pass under no_sync() and the next step.
std::string evaluate_after_no_sync(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  auto net = std::make_shared<NormImpl>();
  DistributedDataParallel<NormImpl> ddp(net, process_group);
  auto step = [&](int number) { std::get<0>(ddp.forward(input_of(rank, number))).pow(2).mean().backward(); };
  for (int number = 0; number < 6; number += 2) {
    net->zero_grad();
    {
      auto local = ddp.no_sync();
      step(number);
    }
    if (rank == 0) {
      torch::NoGradGuard no_grad;
      net->eval();
      ddp.forward(input_of(rank, number));
      net->train();
    }
    step(number + 1);
    at::Tensor smallest = net->last->weight.grad().clone(), largest = smallest.clone();
    std::vector<at::Tensor> low{smallest}, high{largest};
    process_group->allreduce(low, {.reduceOp = c10d::ReduceOp::MIN})->wait();
    process_group->allreduce(high, {.reduceOp = c10d::ReduceOp::MAX})->wait();
    require(torch::equal(low[0], high[0]), "the ranks have other gradients");
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: one rank may evaluate alone after a forward pass under no_sync") {
  for (auto& said : spawn({.nprocs = 2}, evaluate_after_no_sync, ShmGroup(2))) CHECK(said == "went through");
}

TEST_CASE("DDP: no_sync accumulates locally, and the next pass reduces the sum") {
  CHECK(spawn({.nprocs = 2}, accumulate, ShmGroup(2)) == std::vector<bool>{true, true});
}

TEST_CASE("DDP: every forward pass starts from rank 0's buffers, and results of any shape are followed") {
  auto means = spawn({.nprocs = 2}, running_mean, ShmGroup(2));
  CHECK(torch::allclose(means[0], means[1], 1e-9, 1e-12));
}

namespace {

std::string die_in_backward(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(0);
  DistributedDataParallel<Net> ddp(DistributedDataParallelOptions{.bucket_bytes = 1000, .first_bucket_bytes = 1000},
                                   net, process_group);
  try {
    for (int step = 0; step < 5; ++step) {
      if (rank == 1 && step == 3) kill_at("group.in_place.after", 1);
      net->zero_grad();
      loss_of(ddp.forward(input_of(rank, step))).backward();
    }
  } catch (const PeerDied& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: when a rank is killed in the backward pass, backward() throws PeerDied on the others") {
  ShmGroup group(3);
  std::vector<Process<std::string>> processes;
  for (int rank = 0; rank < 3; ++rank) {
    processes.emplace_back(ProcessOptions{.name = fmt::format("rank{}", rank)}, die_in_backward, rank, group);
    processes.back().start();
  }
  for (int rank : {0, 2})
    CHECK_THAT(processes[std::size_t(rank)].result(),
               ContainsSubstring("all_reduce: rank 1") && ContainsSubstring("died"));
  processes[1].join();
  CHECK(processes[1].exitcode() == -SIGKILL);
}

}  // namespace ddp_test
