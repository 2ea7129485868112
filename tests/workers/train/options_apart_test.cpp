// What ranks give DistributedDataParallel, ZeroRedundancyOptimizer and Join, where one gives something else.
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace options_apart_test {

namespace {

/// What make() throws here; afterwards all ranks can go on.
template <class Error = std::invalid_argument>
std::string said_of(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::function<void()>& make) {
  std::string said = "nothing";
  try {
    make();
  } catch (const Error& error) {
    said = error.what();
  }
  std::vector<at::Tensor> sum{torch::ones({1})};
  process_group->allreduce(sum)->wait();
  return sum[0].item<double>() == process_group->getSize() ? said : "the group cannot go on";
}

/// The number of the option that rank 1 has otherwise.
std::string options_of_ddp(int rank, ShmGroup group, int which) {
  auto process_group = init_process_group(group, rank);
  DistributedDataParallelOptions options;
  if (rank == 1) switch (which) {
      case 0:
        options.bucket_bytes = 4096;
        break;
      case 1:
        options.first_bucket_bytes = 4096;
        break;
      case 2:
        options.find_unused_parameters = true;
        break;
      case 3:
        options.static_graph = true;
        break;
      case 4:
        options.skip_all_reduce_unused_params = true;
        break;
      case 5:
        options.init_sync = false;
        break;
      case 6:
        options.broadcast_buffers = false;
        break;
      default:
        options.buffer_sync = BufferSync::average_after;
    }
  return said_of(process_group, [&] {
    DistributedDataParallel<torch::nn::Linear> ddp(options, torch::nn::Linear(3, 3), process_group);
  });
}

enum class Apart { lr, betas, kind, groups_lr, cannot };

std::string options_of_zero(int rank, ShmGroup group, Apart apart) {
  auto process_group = init_process_group(group, rank);
  const bool is_other = rank == 1;
  const std::vector<at::Tensor> parameters{torch::zeros({4, 4}), torch::zeros({4})};
  const MakeOptimizer make = [&](const ParameterGroups& groups) -> std::unique_ptr<torch::optim::Optimizer> {
    if (is_other && apart == Apart::cannot) throw std::runtime_error("no such file: rates.json");
    if (is_other && apart == Apart::kind)
      return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.5));
    torch::optim::AdamOptions options(is_other && apart == Apart::lr ? 0.25 : 0.5);
    if (is_other && apart == Apart::betas) options.betas({0.5, 0.75});
    return std::make_unique<torch::optim::Adam>(groups, options);
  };
  ParameterGroups groups;
  groups.emplace_back(std::vector<at::Tensor>{parameters[0]});
  groups.emplace_back(std::vector<at::Tensor>{parameters[1]},
                      std::make_unique<torch::optim::AdamOptions>(is_other && apart == Apart::groups_lr ? 0.125 : 0.5));
  return said_of<std::exception>(process_group,
                                 [&] { const ZeroRedundancyOptimizer optimizer(groups, make, process_group); });
}

/// Of a class of the user's own, whose archive has another one inside, or that cannot be written.
template <bool writes>
struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions<writes>> {
  void serialize(torch::serialize::OutputArchive& archive) const override {
    if (!writes) throw std::logic_error("not written by this class");
    torch::serialize::OutputArchive inside(archive.compilation_unit());
    inside.write("warm_up", c10::IValue(0.5));
    archive.write("schedule", inside);
  }
};

template <bool writes>
struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(const ParameterGroups& groups) : Optimizer(groups, std::make_unique<OwnOptions<writes>>()) {}
  at::Tensor step(LossClosure) override { return {}; }
};

std::string own_optimizer(int rank, ShmGroup group, bool writes) {
  const std::vector<std::byte> elsewhere(std::size_t(rank) << 16);  // what is nested lies at another place in memory
  auto process_group = init_process_group(group, rank);
  const std::vector<at::Tensor> parameters{torch::zeros({4, 4}), torch::zeros({4})};
  return said_of<std::exception>(process_group, [&] {
    const ZeroRedundancyOptimizer optimizer(
        parameters,
        [&](const ParameterGroups& groups) -> std::unique_ptr<torch::optim::Optimizer> {
          if (writes) return std::make_unique<OwnOptimizer<true>>(groups);
          return std::make_unique<OwnOptimizer<false>>(groups);
        },
        process_group);
  });
}

/// A Join of what is in another one is refused, and the other goes on.
std::string join_twice(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  torch::nn::Linear net(3, 3), other(3, 3);
  DistributedDataParallel<torch::nn::Linear> ddp(net, process_group), apart(other, process_group);
  ZeroRedundancyOptimizer optimizer(net->parameters(),
                                    optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(0.5)), process_group);
  Join join({ddp.joinable(), optimizer});
  std::string said;
  for (Joinable* again : {&ddp.joinable(), static_cast<Joinable*>(&optimizer)}) try {
      Join second({apart.joinable(), *again});
    } catch (const std::invalid_argument& error) {
      said += error.what() + std::string("\n");
    }
  try {
    Join same({apart.joinable(), apart.joinable()});
  } catch (const std::invalid_argument& error) {
    said += error.what() + std::string("\n");
  }
  for (int step = 0; step < 2 + rank; ++step) {
    optimizer.zero_grad();
    ddp.forward(torch::ones({2, 3})).sum().backward();
    optimizer.step();
  }
  join.finish();
  // What was joined with the one that was refused is in none.
  Join third({apart.joinable()});
  apart.forward(torch::ones({2, 3})).sum().backward();
  third.finish();
  return said;
}

/// What a later model is told that begins a step, or comes twice in one.
std::string out_of_turn(int rank, ShmGroup group, bool twice) {
  auto process_group = init_process_group(group, rank);
  torch::nn::Linear first(3, 3), second(3, 3);
  DistributedDataParallel<torch::nn::Linear> one(first, process_group), other(second, process_group);
  Join join({one.joinable(), other.joinable()});
  const auto pass = [](auto& ddp) { ddp.forward(torch::ones({2, 3})).sum().backward(); };
  try {
    if (twice) {
      pass(one);
      pass(other);
    }
    pass(other);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: options that differ between ranks are refused by name on all") {
  const std::vector<std::string> names{"bucket_bytes = 4096",
                                       "first_bucket_bytes = 4096",
                                       "find_unused_parameters = true",
                                       "static_graph = true",
                                       "skip_all_reduce_unused_params = true",
                                       "init_sync = false",
                                       "broadcast_buffers = false",
                                       "buffer_sync = average_after"};
  for (int which = 0; which < int(names.size()); ++which)
    for (const std::string& said : spawn({.nprocs = 3}, options_of_ddp, ShmGroup(3), which))
      CHECK_THAT(said, ContainsSubstring("the DistributedDataParallel of rank 1 differs from that of rank 0: " +
                                         names[std::size_t(which)] + " instead of"));
}

TEST_CASE("ZeroRedundancyOptimizer: options that differ between ranks, or a maker that throws, are told to all") {
  const std::vector<std::pair<Apart, std::string>> cases{
      {Apart::lr, "lr of group 0 = 0.25 instead of lr of group 0 = 0.5"},
      {Apart::betas, "betas of group 0 = (0.5, 0.75) instead of"},
      {Apart::kind, "dampening of group 0 = 0"},
      {Apart::groups_lr, "lr of group 1 = 0.125 instead of"},
      {Apart::cannot, "rates.json"}};
  for (const auto& [apart, text] : cases)
    for (const std::string& said : spawn({.nprocs = 2}, options_of_zero, ShmGroup(2), apart)) {
      CAPTURE(int(apart));
      CHECK_THAT(said, ContainsSubstring(text));
    }
}

TEST_CASE("ZeroRedundancyOptimizer: an optimizer of a class of the user's own is none that differs") {
  for (const bool writes : {true, false})
    for (const std::string& said : spawn({.nprocs = 2}, own_optimizer, ShmGroup(2), writes)) CHECK(said == "nothing");
}

TEST_CASE("Join: what is in a Join cannot be joined again, and goes on") {
  for (const std::string& said : spawn({.nprocs = 2}, join_twice, ShmGroup(2)))
    CHECK(said ==
          "Join of a DistributedDataParallel that is in another Join: finish() that one first\n"
          "Join of a ZeroRedundancyOptimizer that is in another Join: finish() that one first\n"
          "joinable 2 of a Join stands in its list before already: give each once\n");
}

TEST_CASE("Join: a joinable that comes out of its turn is refused") {
  for (const bool twice : {false, true})
    for (const std::string& said : spawn({.nprocs = 2}, out_of_turn, ShmGroup(2), twice))
      CHECK_THAT(said, ContainsSubstring(twice ? "joinable 2 of a Join comes twice in a step"
                                               : "joinable 2 of a Join comes before the first one in a step"));
}

}  // namespace options_apart_test
