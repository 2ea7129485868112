// ZeroRedundancyOptimizer beside the optimizer alone.
#include <shoal/workers/train/zero_redundancy_optimizer.h>

#include <fmt/format.h>
#include <shoal/internal/workers/train/optim/partition.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/optimizer.h>
#include <shoal/workers/train/process_group.h>
#include <torch/torch.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"
#include "tests/workers/train/optim/optimizer_kinds.h"

using namespace shoal;
using namespace shoal::test;

namespace zero_redundancy_optimizer_test {

namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(6, 30), torch::nn::Tanh(), torch::nn::Linear(30, 20), torch::nn::Tanh(),
                            torch::nn::Linear(20, 3));
  net->to(at::kDouble);
  return net;
}

/// The same gradients on all ranks.
void compute_gradients(torch::nn::Sequential& net, int step) { loss_of(net->forward(batch_of(0, step))).backward(); }

void require_equal(const torch::nn::Sequential& a, const torch::nn::Sequential& b, const std::string& what) {
  for (std::size_t i = 0; i < a->parameters().size(); ++i)
    require(torch::equal(a->parameters()[i], b->parameters()[i]), fmt::format("{}: parameter {}", what, i));
}

/// Bit for bit the numbers of the optimizer alone, also after the state was brought together, written, and read by
/// optimizers that start anew. Returns the bytes of this rank's state, and of the whole one.
std::pair<std::size_t, std::size_t> beside_one(int rank, ShmGroup group, Kind kind, bool groups) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(), reference = make_net();
  const auto grouped = [&](const torch::nn::Sequential& of) {
    const auto all = of->parameters();
    ParameterGroups result;
    result.emplace_back(std::vector<at::Tensor>(all.begin(), all.begin() + (groups ? 3 : 6)));
    if (groups) result.emplace_back(std::vector<at::Tensor>(all.begin() + 3, all.end()));
    return result;
  };
  ZeroRedundancyOptimizer optimizer(grouped(net), maker(kind), process_group);
  auto whole = maker(kind)(grouped(reference));
  const auto train = [&](ZeroRedundancyOptimizer& spread, torch::optim::Optimizer& alone, int from, int to) {
    for (int step = from; step < to; ++step) {
      spread.zero_grad(step % 2 == 0);
      alone.zero_grad();
      compute_gradients(net, step);
      compute_gradients(reference, step);
      spread.step();
      alone.step();
      require_equal(net, reference, fmt::format("step {}", step));
    }
  };
  train(optimizer, *whole, 0, 4);
  // A schedule's rate, on all ranks and in what is written.
  for (auto& one : optimizer.local().param_groups()) one.options().set_lr(0.003);
  for (auto& one : whole->param_groups()) one.options().set_lr(0.003);
  train(optimizer, *whole, 4, 6);

  std::size_t own_bytes = optimizer.state_bytes(), all_bytes = 0;
  auto consolidated = optimizer.consolidate(1);
  require((consolidated != nullptr) == (rank == 1), "the root alone gets the state");
  std::string written;
  if (rank == 1) {
    std::ostringstream out;
    torch::save(*consolidated, out);
    written = out.str();
    for (const at::Tensor& tensor : optimizer_state(*consolidated)) all_bytes += tensor.nbytes();
  }
  std::vector<at::Tensor> size{torch::tensor({std::int64_t(written.size())})};
  process_group->broadcast(size, {.rootRank = 1})->wait();
  written.resize(std::size_t(size[0].item<std::int64_t>()));
  std::vector<at::Tensor> bytes{torch::from_blob(written.data(), {std::int64_t(written.size())}, at::kByte)};
  process_group->broadcast(bytes, {.rootRank = 1})->wait();

  ZeroRedundancyOptimizer anew(grouped(net), maker(kind), process_group);
  auto read = anew.make_whole();
  std::istringstream in(written);
  torch::load(*read, in);
  anew.load_state(*read);
  require(anew.local().param_groups()[0].options().get_lr() == 0.003, "the learning rate was not read");
  train(anew, *whole, 6, 9);
  try {
    anew.load_state(*whole);
    throw std::runtime_error("the state of another module's optimizer was taken");
  } catch (const std::invalid_argument&) {
  }
  return {own_bytes, all_bytes};
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: numbers are those of the optimizer alone, and the state is a part on each rank") {
  for (Kind kind : {Kind::sgd, Kind::adam, Kind::adamw, Kind::rmsprop, Kind::adagrad})
    for (bool groups : {false, true}) {
      INFO(int(kind) << (groups ? ", two groups" : ""));
      const auto bytes = spawn({.nprocs = 3}, beside_one, ShmGroup(3), kind, groups);
      std::size_t sum = 0;
      for (auto& [own, all] : bytes) {
        sum += own;
        CHECK(own < bytes[1].second);
      }
      CHECK(sum == bytes[1].second);
    }
}

namespace {

/// More ranks than parameters: some ranks have none.
std::string few_parameters(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  at::Tensor parameter = torch::ones({4}).set_requires_grad(true);
  ZeroRedundancyOptimizer optimizer(std::vector<at::Tensor>{parameter},
                                    optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(0.5).momentum(0.5)),
                                    process_group);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    parameter.sum().backward();
    optimizer.step();
  }
  require((parameter == 1 - 0.5 - 0.75).all().item<bool>(), "the values");
  require(optimizer.elements() == std::vector<std::int64_t>{4, 0, 0}, "the partition");
  require((optimizer.state_bytes() == 0) == (rank != 0), "state on a rank without parameters");
  auto whole = optimizer.consolidate();
  require((whole != nullptr) == (rank == 0), "the root alone gets the state");
  try {
    (void)optimizer.consolidate(3);
    return "a state was sent to rank 3";
  } catch (const std::invalid_argument& error) {
    require(std::string(error.what()).find("to rank 3: give one from 0 to 2") != std::string::npos, error.what());
  }
  try {
    ZeroRedundancyOptimizer none(std::vector<at::Tensor>{}, optimizer_maker<torch::optim::SGD>(0.1), process_group);
  } catch (const std::invalid_argument&) {
    return "went through";
  }
  return "an optimizer of nothing was made";
}

std::string die_before_step(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net();
  ZeroRedundancyOptimizer optimizer(net->parameters(), maker(Kind::adam), process_group);
  try {
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      compute_gradients(net, step);
      if (rank == 1 && step == 1) std::raise(SIGKILL);
      optimizer.step();
    }
  } catch (const PeerDied& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: ranks may have no parameters") {
  for (auto& said : spawn({.nprocs = 3}, few_parameters, ShmGroup(3))) CHECK(said == "went through");
}

namespace {

std::string over_other_parameters(int rank, const ShmGroup& group) {
  const auto process_group = init_process_group(group, rank);
  const std::vector<at::Tensor> parameters{at::zeros({4, 4}), at::zeros({rank == 1 ? 5 : 4})};
  try {
    ZeroRedundancyOptimizer optimizer(parameters, maker(Kind::adam), process_group);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: other parameters on a rank are refused by name, on all ranks") {
  for (auto& said : spawn({.nprocs = 2}, over_other_parameters, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("the ZeroRedundancyOptimizer of rank 1 differs from that of rank 0: parameter 1 "
                                       "(Float [5], strides [1]) instead of parameter 1 (Float [4], strides [1])"));
}

namespace {

std::string over_nothing_on_a_rank(int rank, const ShmGroup& group, bool undefined) {
  const auto process_group = init_process_group(group, rank);
  std::vector<at::Tensor> parameters{at::zeros({4})};
  if (rank == 1 && undefined) parameters[0] = at::Tensor();
  if (rank == 1 && !undefined) parameters.clear();
  try {
    ZeroRedundancyOptimizer optimizer(parameters, maker(Kind::adam), process_group);
  } catch (const std::invalid_argument& error) {
    process_group->barrier()->wait();
    return error.what();
  }
  return "went through";
}

std::string over_undefined(int rank, const ShmGroup& group) {
  try {
    ZeroRedundancyOptimizer optimizer(std::vector<at::Tensor>{at::zeros({4}), at::Tensor()}, maker(Kind::adam),
                                      init_process_group(group, rank));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

/// Two parameters, the larger one of rank 0, the other of rank 1, with gradients of this type.
struct TwoOwners {
  explicit TwoOwners(const c10::intrusive_ptr<c10d::ProcessGroup>& group, at::ScalarType type)
      : parameters{torch::zeros({6}, type), torch::zeros({3}, type)},
        optimizer(parameters, optimizer_maker<torch::optim::SGD>(0.5), group) {
    require(optimizer.owners()[0].second == 0 && optimizer.owners()[1].second == 1, "the owners");
  }
  std::vector<at::Tensor> parameters;
  ZeroRedundancyOptimizer optimizer;
};

std::string clip_complex(int rank, const ShmGroup& group) {
  const auto process_group = init_process_group(group, rank);
  TwoOwners training(process_group, at::kComplexFloat);
  for (const double norm_type : {2.0, 1.0, double(INFINITY)}) {
    double expected = 0;
    for (const at::Tensor& parameter : training.parameters) {
      const at::Tensor gradient = torch::full({parameter.numel()}, c10::complex<double>(3, 4), parameter.options());
      parameter.mutable_grad() = gradient;
      expected = std::isinf(norm_type) ? 5 : expected + std::pow(5, norm_type) * double(parameter.numel());
    }
    if (!std::isinf(norm_type)) expected = std::pow(expected, 1 / norm_type);
    const double norm = training.optimizer.clip_grad_norm_(expected / 2, norm_type);
    require(std::abs(norm - expected) < 1e-9 * expected, fmt::format("a norm of {}", norm));
    for (const at::Tensor& parameter : training.parameters)
      require_close(torch::view_as_real(parameter.grad()).select(1, 1), torch::full({parameter.numel()}, 2.F),
                    "the clipped gradient", 1e-5);
  }
  training.optimizer.step();
  for (const at::Tensor& parameter : training.parameters)
    require_close(torch::view_as_real(parameter).select(1, 0), torch::full({parameter.numel()}, -0.75F), "a step",
                  1e-5);
  return "went through";
}

/// libtorch has no norm of integers, which are rank 1's.
std::string clip_what_has_no_norm(int rank, const ShmGroup& group) {
  const auto process_group = init_process_group(group, rank);
  TwoOwners training(process_group, at::kFloat);
  training.parameters[0].mutable_grad() = torch::ones({6});
  training.parameters[1].set_data(torch::zeros({3}, at::kInt));
  training.parameters[1].mutable_grad() = torch::ones({3}, at::kInt);
  std::string said = "went through";
  try {
    training.optimizer.clip_grad_norm_(0.1);
  } catch (const std::exception& error) {
    said = error.what();
  }
  require(training.parameters[0].grad().eq(1).all().item<bool>(), "something was clipped");
  process_group->barrier()->wait();
  return said;
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: no parameters, or undefined ones, on one rank are refused on all") {
  for (const bool undefined : {false, true})
    for (auto& said : spawn({.nprocs = 2}, over_nothing_on_a_rank, ShmGroup(2), undefined))
      CHECK_THAT(said,
                 ContainsSubstring("rank 1 differs from that of rank 0: " +
                                   std::string(undefined ? "parameter 0, undefined" : "nothing more") + " instead of"));
  for (auto& said : spawn({.nprocs = 2}, over_undefined, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("parameter 1 is an undefined tensor: give dense tensors"));
}

TEST_CASE("ZeroRedundancyOptimizer: complex gradients are clipped, and where a norm fails all ranks say so") {
  for (auto& said : spawn({.nprocs = 2}, clip_complex, ShmGroup(2))) CHECK(said == "went through");
  const auto said = spawn({.nprocs = 2}, clip_what_has_no_norm, ShmGroup(2));
  CHECK_THAT(said[0], ContainsSubstring("another rank cannot compute its gradients' norm"));
  CHECK_THAT(said[1], ContainsSubstring("Int"));
}

namespace {

/// Counting and bringing together the state before the first step, and while one parameter has had no gradient yet.
std::string looked_at(int rank, const ShmGroup& group, Kind kind) {
  const auto process_group = init_process_group(group, rank);
  const auto make = [&](const ParameterGroups& groups) -> std::unique_ptr<torch::optim::Optimizer> {
    if (kind != Kind::sgd) return maker(kind)(groups);
    // The first step's gradient counts as a whole, and later ones a tenth.
    return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(1).momentum(0.9).dampening(0.9));
  };
  std::vector<at::Tensor> spread, alone;
  for (const std::int64_t size : {7, 6, 5, 4}) {
    spread.push_back(torch::ones({size}).set_requires_grad(true));
    alone.push_back(torch::ones({size}).set_requires_grad(true));
  }
  ZeroRedundancyOptimizer optimizer(spread, make, process_group);
  auto whole = make({torch::optim::OptimizerParamGroup(alone)});
  const std::size_t at_first = optimizer.state_bytes();
  require(at_first > 0, "the bytes that the first step will make");
  for (int step = 0; step < 4; ++step) {
    require(optimizer.state_bytes() == at_first, "the bytes of the state");
    auto together = optimizer.consolidate(step % 2);
    if (together) {
      require(together->state().size() == whole->state().size(), fmt::format("step {}: state that nobody has", step));
      for (std::size_t i = 0; i < alone.size(); ++i)
        require(together->state().count(spread[i].unsafeGetTensorImpl()) ==
                    whole->state().count(alone[i].unsafeGetTensorImpl()),
                fmt::format("step {}: state of parameter {}", step, i));
    }
    optimizer.zero_grad();
    whole->zero_grad();
    // The last two are used from the third step on.
    for (std::size_t i = 0; i < (step < 2 ? 2 : 4); ++i) {
      (spread[i] * spread[i] * double(step + 1)).sum().backward();
      (alone[i] * alone[i] * double(step + 1)).sum().backward();
    }
    optimizer.step();
    whole->step();
    for (std::size_t i = 0; i < alone.size(); ++i)
      require(torch::equal(spread[i], alone[i]), fmt::format("step {}, parameter {}", step, i));
  }
  return "went through";
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: to count the state or to bring it together does not change the training") {
  for (const Kind kind : {Kind::sgd, Kind::adam, Kind::rmsprop, Kind::adagrad})
    for (auto& said : spawn({.nprocs = 2}, looked_at, ShmGroup(2), kind)) CHECK(said == "went through");
}

namespace {

std::string by_closure(int rank, const ShmGroup& group) {
  at::set_num_threads(1);
  const auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(), reference = make_net();
  ZeroRedundancyOptimizer optimizer(net->parameters(), maker(Kind::adam), process_group);
  auto whole = maker(Kind::adam)({torch::optim::OptimizerParamGroup(reference->parameters())});
  const auto loss_and_gradients = [](torch::nn::Sequential& of, int step, int& calls) {
    return [&of, step, &calls] {
      ++calls;
      of->zero_grad();
      at::Tensor loss = loss_of(of->forward(batch_of(0, step)));
      loss.backward();
      return loss;
    };
  };
  int calls = 0, of_reference = 0;
  for (int step = 0; step < 4; ++step) {
    const torch::NoGradGuard no_grad;  // the closure has them all the same
    const at::Tensor loss = optimizer.step(loss_and_gradients(net, step, calls));
    require(torch::equal(loss, whole->step(loss_and_gradients(reference, step, of_reference))), "the loss");
    require_equal(net, reference, fmt::format("step {}", step));
  }
  require(calls == 4 && of_reference == 4, "once a step");
  try {
    optimizer.step(std::function<at::Tensor()>());
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: step(closure) is torch's: it computes the gradients, steps, and returns the loss") {
  for (auto& said : spawn({.nprocs = 2}, by_closure, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("call step() without an argument"));
}

namespace {

/// The last layer is trained from the third step on, by a rate of its own or by the optimizer's.
std::string with_group_added(int rank, const ShmGroup& group, bool own_rate) {
  at::set_num_threads(1);
  const auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(), reference = make_net();
  const auto first = [](const torch::nn::Sequential& of) {
    const auto all = of->parameters();
    return std::vector<at::Tensor>(all.begin(), all.begin() + 4);
  };
  const auto last = [&](const torch::nn::Sequential& of) {
    const auto all = of->parameters();
    torch::optim::OptimizerParamGroup added({all[4], all[5], all[4]});
    if (own_rate) added.set_options(std::make_unique<torch::optim::AdamOptions>(torch::optim::AdamOptions(0.02)));
    return added;
  };
  ZeroRedundancyOptimizer optimizer(first(net), maker(Kind::adam), process_group);
  auto whole = maker(Kind::adam)({torch::optim::OptimizerParamGroup(first(reference))});
  const auto refused = [&](const torch::optim::OptimizerParamGroup& added) -> std::string {
    try {
      optimizer.add_param_group(added);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "taken";
  };
  std::string said;
  for (int step = 0; step < 6; ++step) {
    if (step == 2) {
      said += refused(torch::optim::OptimizerParamGroup({net->parameters()[rank == 0 ? 4 : 5]})) + "; ";
      said += refused(torch::optim::OptimizerParamGroup({net->parameters()[0]})) + "; ";
      optimizer.add_param_group(last(net));
      torch::optim::OptimizerParamGroup of_reference = last(reference);
      of_reference.params().pop_back();
      whole->add_param_group(of_reference);
    }
    optimizer.zero_grad();
    net->zero_grad();
    reference->zero_grad();
    compute_gradients(net, step);
    compute_gradients(reference, step);
    optimizer.step();
    whole->step();
    require_equal(net, reference, fmt::format("step {}", step));
  }
  require(optimizer.owners().size() == 6, "the owners of all");
  const auto together = optimizer.consolidate();
  if (together)
    require(together->state().size() == 6 && together->param_groups().size() == 2, "what is brought together");
  auto loaded = optimizer.make_whole();
  optimizer.load_state(*loaded);
  return said;
}

std::string add_to_adagrad(int rank, const ShmGroup& group) {
  const auto process_group = init_process_group(group, rank);
  ZeroRedundancyOptimizer optimizer(std::vector<at::Tensor>{at::zeros({4})}, maker(Kind::adagrad), process_group);
  try {
    optimizer.add_param_group(torch::optim::OptimizerParamGroup({at::zeros({3})}));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: a group that is added is trained as by the optimizer alone") {
  for (const bool own_rate : {false, true})
    for (auto& said : spawn({.nprocs = 2}, with_group_added, ShmGroup(2), own_rate))
      CHECK_THAT(said, ContainsSubstring("rank 1 differs from that of rank 0: parameter 0 (Double [3]") &&
                           ContainsSubstring("parameter 0 of the group is in the optimizer already") &&
                           !ContainsSubstring("taken"));
  for (auto& said : spawn({.nprocs = 2}, add_to_adagrad, ShmGroup(2)))
    CHECK_THAT(said, ContainsSubstring("add_param_group of Adagrad"));
}

TEST_CASE("ZeroRedundancyOptimizer: when a rank is killed, step() throws PeerDied on the others") {
  ShmGroup group(2);
  std::vector<Process<std::string>> processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.emplace_back(ProcessOptions{.name = fmt::format("rank{}", rank)}, die_before_step, rank, group);
    processes.back().start();
  }
  CHECK_THAT(processes[0].result(), ContainsSubstring("rank 1") && ContainsSubstring("died"));
  processes[1].join();
  CHECK(processes[1].exitcode() == -SIGKILL);
}

TEST_CASE("partition_by_size: the largest first, each to the part with the least") {
  CHECK(partition_by_size({5, 1, 4, 3, 3}, 2) == std::vector<int>{0, 1, 1, 1, 0});
  CHECK(partition_by_size({2, 2}, 3) == std::vector<int>{0, 1});
  CHECK(partition_by_size({}, 2).empty());
  // Never more than 4/3 of the best: here of the mean, which the best cannot beat.
  std::vector<std::int64_t> sizes(97);
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = std::int64_t(i * i % 101 + 1);
  const auto parts = partition_by_size(sizes, 7);
  std::vector<std::int64_t> load(7);
  for (std::size_t i = 0; i < sizes.size(); ++i) load[std::size_t(parts[i])] += sizes[i];
  const auto total = std::accumulate(load.begin(), load.end(), std::int64_t(0));
  for (const auto one : load) CHECK(one * 7 * 3 <= total * 4);
}

}  // namespace zero_redundancy_optimizer_test
