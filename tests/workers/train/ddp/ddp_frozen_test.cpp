// DDP of modules whose parameters are frozen and unfrozen after it was made, and buffers that ranks keep as their own.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace ddp_frozen_test {

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(6, 40))),
        second(register_module("second", torch::nn::Linear(40, 3))),
        mark(register_buffer("mark", torch::zeros({2}, at::kDouble))) {
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()); }
  torch::nn::Linear first, second;
  at::Tensor mark;
};
TORCH_MODULE(Net);

/// The gradients of one process with both ranks' batches.
void backward_of_all(Net& reference, int step) {
  loss_of(torch::cat({reference->forward(batch_of(0, step)), reference->forward(batch_of(1, step))})).backward();
}

void set_trained(Net& net, bool trained) { net->first->weight.set_requires_grad(trained); }

/// Frozen in the steps that `frozen` has; -1 there: a pass of rank 1 fails besides, while it is frozen.
std::string toggle(int rank, ShmGroup group, bool views, std::vector<int> frozen) {
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
  int lost = 0;
  for (int step = 0; step < int(frozen.size()); ++step) {
    set_trained(net, frozen[std::size_t(step)] == 0);
    set_trained(reference, frozen[std::size_t(step)] == 0);
    bool fails = frozen[std::size_t(step)] < 0, goes_through = false;
    while (!goes_through) try {
        for (Net* each : {&net, &reference}) (*each)->zero_grad();
        const at::Tensor output = ddp.forward(batch_of(rank, step));
        if (std::exchange(fails, false) && rank == 1) throw std::runtime_error("this rank's own fault");
        loss_of(output).backward();
        goes_through = true;
      } catch (const std::exception&) {
        ++lost;
      }
    backward_of_all(reference, step);
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
  }
  return lost == 0 ? "none lost" : "went on";
}

/// What is said where a parameter is frozen from `when` on, and whether training goes on once it no longer is.
std::string freeze(int rank, ShmGroup group, bool views, bool static_graph, int when) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Net net, reference;
  copy_values(*net, *reference);
  DistributedDataParallel<Net> ddp(
      {.bucket_bytes = 300, .first_bucket_bytes = 100, .gradient_as_bucket_view = views, .static_graph = static_graph},
      net, process_group);
  std::string said;
  for (int step = 0; step < when + 4; ++step) {
    if (step == when) {
      set_trained(net, false);
      for (int twice = 0; twice < 2; ++twice) try {
          loss_of(ddp.forward(batch_of(rank, step))).backward();
        } catch (const std::invalid_argument& error) {
          said += error.what() + std::string("; ");
        }
      set_trained(net, true);
    }
    for (Net* each : {&net, &reference}) (*each)->zero_grad();
    loss_of(ddp.forward(batch_of(rank, step))).backward();
    backward_of_all(reference, step);
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
  }
  return said;
}

/// As a generator's step goes back through a discriminator, whose own step this is not.
std::string pass_through_frozen(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Net net, reference;
  copy_values(*net, *reference);
  DistributedDataParallel<Net> ddp({.bucket_bytes = 300, .first_bucket_bytes = 100}, net, process_group);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor input = batch_of(rank, step).requires_grad_();
    for (at::Tensor& parameter : net->parameters()) parameter.set_requires_grad(false);
    {
      const auto no_sync = ddp.no_sync();
      ddp.forward(input).sum().backward();
    }
    require(input.grad().defined() && !net->second->weight.grad().defined(), "which gradients there are");
    for (at::Tensor& parameter : net->parameters()) parameter.set_requires_grad(true);
    for (Net* each : {&net, &reference}) (*each)->zero_grad();
    loss_of(ddp.forward(batch_of(rank, step))).backward();
    backward_of_all(reference, step);
    require_same_gradients(*net, *reference, fmt::format("step {}", step));
    net->zero_grad();
  }
  return "went through";
}

std::string unfreeze(int rank, ShmGroup group, bool ignored) {
  auto process_group = init_process_group(group, rank);
  Net net;
  set_trained(net, false);
  DistributedDataParallelOptions options;
  if (ignored) options.ignored = {"first.weight"};
  DistributedDataParallel<Net> ddp(options, net, process_group);
  ddp.forward(batch_of(rank, 0)).sum().backward();
  set_trained(net, true);
  try {
    ddp.forward(batch_of(rank, 1)).sum().backward();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

/// The marks in the end, of ranks that began with 10 and 11 in theirs and added 1 in each step; rank 1 has a step more.
std::string own_buffers(int rank, ShmGroup group, DistributedDataParallelOptions options, bool freezes) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  net->mark.fill_(10 + rank);
  DistributedDataParallel<Net> ddp(options, net, process_group);
  Join join({ddp.joinable()});
  for (int step = 0; step < 2 + rank; ++step) {
    ddp.forward(batch_of(rank, step)).sum().backward();
    net->mark.add_(1);
  }
  if (freezes) set_trained(net, false);  // what a Join's end makes anew does not mind
  join.finish();
  return fmt::format("{}", net->mark[1].item<double>());
}

}  // namespace

TEST_CASE("DDP: a parameter may be frozen for some steps where gradients may be missing") {
  for (const bool views : {true, false})
    for (const std::vector<int>& frozen :
         {std::vector{0, 1, 0, 1, 0, 1}, std::vector{1, 1, 0, 0, 1}, std::vector{0, 0, -1, 1, 0, -1}})
      for (const std::string& said : spawn({.nprocs = 2}, toggle, ShmGroup(2), views, frozen))
        CHECK(said == (frozen[2] < 0 ? "went on" : "none lost"));
}

TEST_CASE("DDP: a parameter that was frozen after it was made is refused by name, and what follows goes on") {
  for (const bool views : {true, false})
    for (const int when : {0, 1, 2, 4})
      for (const bool static_graph : {false, true})
        for (const std::string& said : spawn({.nprocs = 2}, freeze, ShmGroup(2), views, static_graph, when))
          CHECK_THAT(said, StartsWith("first.weight requires no gradient any more") &&
                               ContainsSubstring("find_unused_parameters") &&
                               ContainsSubstring("; first.weight requires no gradient any more"));
}

TEST_CASE("DDP: a model that is frozen for a pass in no_sync() is gone through, and goes on") {
  for (const std::string& said : spawn({.nprocs = 2}, pass_through_frozen, ShmGroup(2))) CHECK(said == "went through");
}

TEST_CASE("DDP: a parameter that was unfrozen after it was made is refused by name, unless it is ignored") {
  for (const std::string& said : spawn({.nprocs = 2}, unfreeze, ShmGroup(2), false))
    CHECK_THAT(said, StartsWith("first.weight requires a gradient, and did not when"));
  for (const std::string& said : spawn({.nprocs = 2}, unfreeze, ShmGroup(2), true)) CHECK(said == "nothing");
}

TEST_CASE("DDP: ranks keep buffers that are not kept equal, at the beginning and where a Join ends") {
  const auto marks = [](const DistributedDataParallelOptions& options, bool freezes = false) {
    return spawn({.nprocs = 2}, own_buffers, ShmGroup(2), options, freezes);
  };
  using Marks = std::vector<std::string>;
  CHECK(marks({.broadcast_buffers = false, .init_sync_buffers = false}) == Marks{"12", "14"});
  CHECK(marks({.broadcast_buffers = false}) == Marks{"12", "13"});
  CHECK(marks({.broadcast_buffers = false, .init_sync = false}) == Marks{"12", "14"});
  // Each step begins with the first active rank's.
  CHECK(marks({}) == Marks{"13", "13"});
  CHECK(marks({.static_graph = true}, true) == Marks{"13", "13"});
}

}  // namespace ddp_frozen_test
