// Join with a ZeroRedundancyOptimizer, FloatMasters, or both: ranks without a batch step as the others do.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/float_masters.h>
#include <shoal/workers/train/join.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace zero_in_join_test {

namespace {

using Net = torch::nn::Sequential;
using Ddp = DistributedDataParallel<Net>;

Net make_net(at::ScalarType type) {
  torch::manual_seed(0);
  Net net(torch::nn::Linear(6, 20), torch::nn::Tanh(), torch::nn::Linear(20, 9), torch::nn::Tanh(),
          torch::nn::Linear(9, 3));
  net->to(type);
  return net;
}

/// What the loop of a training does between backward() and step().
enum class Clip { none, torchs, own, by_value };

struct Way {
  int world = 3;
  bool first_ends_first = true;
  bool schedule = false;
  Clip clip = Clip::none;
  bool sharded = false;
  bool closure = false;
};

int batches_of(int rank, const Way& way) { return 1 + 2 * (way.first_ends_first ? rank : way.world - 1 - rank); }
int last_step(const Way& way) { return 1 + 2 * (way.world - 1); }
int active_in(int step, const Way& way) {
  int active = 0;
  for (int rank = 0; rank < way.world; ++rank) active += step < batches_of(rank, way) ? 1 : 0;
  return active;
}

/// Other numbers than the rate change, too, and each group has its own.
void set_options(torch::optim::Optimizer& optimizer, int step) {
  double factor = 1;
  for (auto& group : optimizer.param_groups()) {
    auto& options = static_cast<torch::optim::SGDOptions&>(group.options());
    options.lr(factor * 0.1 / (1 + 3 * step)).momentum(0.9 - 0.1 * step).weight_decay(0.01 * step).nesterov(step == 3);
    factor /= 2;
  }
}

ParameterGroups two_groups(const std::vector<at::Tensor>& all) {
  ParameterGroups groups;
  groups.emplace_back(std::vector<at::Tensor>(all.begin(), all.begin() + 2));
  groups.emplace_back(std::vector<at::Tensor>(all.begin() + 2, all.end()));
  return groups;
}

void require_equal_on_all(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::vector<at::Tensor>& tensors,
                          const std::string& what) {
  std::vector<at::Tensor> low{torch::nn::utils::parameters_to_vector(tensors).detach().to(at::kDouble)};
  std::vector<at::Tensor> high{low[0].clone()};
  group->allreduce(low, {.reduceOp = c10d::ReduceOp::MIN})->wait();
  group->allreduce(high, {.reduceOp = c10d::ReduceOp::MAX})->wait();
  require(torch::equal(low[0], high[0]), what + " differ between ranks");
}

std::string follows(int rank, ShmGroup group, Way way) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(at::kDouble), reference = make_net(at::kDouble);
  Ddp ddp(net, process_group);
  const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.1).momentum(0.9);
  ZeroRedundancyOptimizer optimizer(two_groups(net->parameters()), optimizer_maker<torch::optim::SGD>(options),
                                    process_group);
  if (way.sharded) ddp.shard_gradients(optimizer.owners());
  torch::optim::SGD of_reference(two_groups(reference->parameters()), options);
  Join join({ddp.joinable(), optimizer});
  for (int step = 0; step < batches_of(rank, way); ++step) {
    if (way.schedule) set_options(optimizer.local(), step);
    optimizer.zero_grad();
    const auto pass = [&] {
      at::Tensor loss = loss_of(ddp(batch_of(rank, step)));
      loss.backward();
      if (way.clip == Clip::torchs) torch::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
      if (way.clip == Clip::by_value) torch::nn::utils::clip_grad_value_(net->parameters(), 0.01);
      if (way.clip == Clip::own) optimizer.clip_grad_norm_(0.05);
      return loss;
    };
    if (way.closure) {
      require(optimizer.step(pass).defined(), "the closure's loss");
    } else {
      pass();
      optimizer.step();
    }
  }
  join.finish();
  for (int step = 0; step < last_step(way); ++step) {
    if (way.schedule) set_options(of_reference, step);
    of_reference.zero_grad();
    for (int other = 0; other < way.world; ++other)
      if (step < batches_of(other, way))
        (loss_of(reference->forward(batch_of(other, step))) / active_in(step, way)).backward();
    if (way.clip == Clip::by_value)
      torch::nn::utils::clip_grad_value_(reference->parameters(), 0.01);
    else if (way.clip != Clip::none)
      require(torch::nn::utils::clip_grad_norm_(reference->parameters(), 0.05) > 0.05, "nothing to clip");
    of_reference.step();
  }
  for (const auto& item : reference->named_parameters())
    require_close(net->named_parameters()[item.key()], item.value(), item.key());
  require_equal_on_all(process_group, net->parameters(), "parameters");
  if (way.schedule)
    require(optimizer.local().param_groups()[1].options().get_lr() == of_reference.param_groups()[1].options().get_lr(),
            "the last step's rate");
  return "went through";
}

void check(Way way) {
  for (const int world : {2, 3})
    for (const bool first_ends_first : {false, true}) {
      way.world = world;
      way.first_ends_first = first_ends_first;
      INFO(world << " ranks" << (first_ends_first ? ", rank 0 ends first" : ""));
      for (auto& said : spawn({.nprocs = world}, follows, ShmGroup(world), way)) CHECK(said == "went through");
    }
}

}  // namespace

TEST_CASE("Join: a ZeroRedundancyOptimizer steps on ranks without a batch by the others' options of that step") {
  check({.schedule = true});
  check({.schedule = true, .closure = true});
}

TEST_CASE("Join: a ZeroRedundancyOptimizer steps on ranks without a batch by gradients as the others clip them") {
  check({.clip = Clip::torchs});
  check({.clip = Clip::by_value});
  check({.clip = Clip::own});
  check({.schedule = true, .clip = Clip::own, .sharded = true});
}

namespace {

std::string clip_out_of_turn(int rank, const ShmGroup& group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(at::kDouble);
  Ddp ddp(net, process_group);
  ZeroRedundancyOptimizer optimizer(net->parameters(), optimizer_maker<torch::optim::SGD>(0.1), process_group);
  std::string said;
  const auto clip = [&] {
    try {
      optimizer.clip_grad_norm_(1);
      said += "clipped; ";
    } catch (const std::invalid_argument& error) {
      said += std::string(error.what()) + "; ";
    }
  };
  {
    Join join({ddp.joinable(), optimizer});
    for (int step = 0; step < 1 + 2 * rank; ++step) {
      if (step == 2) clip();  // behind the last step's, before this one's
      loss_of(ddp(batch_of(rank, step))).backward();
      optimizer.step();
    }
    join.finish();
  }
  Join alone({optimizer});
  clip();
  alone.finish();
  return said;
}

}  // namespace

TEST_CASE("Join: clip_grad_norm_ out of its turn is refused, and the others go on") {
  const auto said = spawn({.nprocs = 2}, clip_out_of_turn, ShmGroup(2));
  CHECK_THAT(said[1], ContainsSubstring("joinable 2 of a Join comes twice in a step"));
  for (const auto& rank : said) CHECK_THAT(rank, ContainsSubstring("give Join the DistributedDataParallel first"));
}

namespace {

/// Rank 1 fails behind its backward pass, when rank 0 waits for its call of the optimizer, and goes on.
std::string fail_before_step(int rank, const ShmGroup& group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(at::kDouble);
  Ddp ddp(net, process_group);
  ZeroRedundancyOptimizer optimizer(net->parameters(), optimizer_maker<torch::optim::SGD>(0.1), process_group);
  int stepped = 0;
  Join join({ddp.joinable(), optimizer});
  for (int step = 0; step < (rank == 0 ? 1 : 6); ++step) try {
      optimizer.zero_grad();
      loss_of(ddp(batch_of(rank, step))).backward();
      if (rank == 1 && step == 2) throw std::runtime_error("this rank's own fault");
      optimizer.clip_grad_norm_(0.1);
      optimizer.step();
      ++stepped;
    } catch (const CollectiveMismatch&) {
    } catch (const std::runtime_error&) {
    }
  join.finish();
  require_equal_on_all(process_group, net->parameters(), "parameters");
  return fmt::format("{} steps", stepped);
}

}  // namespace

TEST_CASE("Join: an exception before a ZeroRedundancyOptimizer's step is told to ranks without a batch") {
  const auto said = spawn({.nprocs = 2}, fail_before_step, ShmGroup(2));
  CHECK(said[0] == "1 steps");
  CHECK(said[1] == "4 steps");  // the third failed, and the fourth was told so
}

namespace {

at::Tensor half_loss(const at::Tensor& output) { return output.to(at::kFloat).pow(2).mean(); }
at::Tensor half_batch(int rank, int step) { return batch_of(rank, step).to(at::kBFloat16); }

/// One process with everybody's batches: gradients in the half type, which are added in float and rounded once.
void reference_step(Net& net, FloatMasters& masters, torch::optim::Optimizer& optimizer,
                    const std::vector<at::Tensor>& batches) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& batch : batches) {
    net->zero_grad();
    half_loss(net->forward(batch)).backward();
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      const at::Tensor gradient = net->parameters()[i].grad().to(at::kFloat);
      if (sums.size() == i)
        sums.push_back(gradient);
      else if (sums[i].defined())
        sums[i] += gradient;
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    net->parameters()[i].mutable_grad() = (sums[i] * (1.F / float(batches.size()))).to(at::kBFloat16);
  masters.take_gradients();
  optimizer.step();
  masters.give_parameters();
}

/// Behind an optimizer of copies: on a rank without a batch the module has them, rounded, after each step.
class IsRounded final : public Joinable {
 public:
  IsRounded(const FloatMasters& masters, c10::intrusive_ptr<c10d::ProcessGroup> process_group)
      : masters_(masters), process_group_(std::move(process_group)) {}
  c10::intrusive_ptr<c10d::ProcessGroup> join_group() const override { return process_group_; }
  void set_join(Join* /*join*/) override {}
  void shadow(const JoinStep& /*step*/) override {
    for (std::size_t i = 0; i < masters_.parameters().size(); ++i)
      require(torch::equal(masters_.module_parameters()[i], masters_.parameters()[i].to(at::kBFloat16)),
              "the module has not the copies on a rank without a batch");
  }
  void end_join(int /*root*/) override {}

 private:
  const FloatMasters& masters_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
};

std::string with_masters(int rank, ShmGroup group, Way way, bool spread) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(at::kBFloat16), reference = make_net(at::kBFloat16);
  Ddp ddp(net, process_group);
  FloatMasters masters(net->parameters()), of_reference(reference->parameters());
  // Plain optimizers keep on each rank what its last step has left, so without momentum.
  const auto options = torch::optim::SGDOptions(0.5).momentum(spread ? 0.9 : 0);
  torch::optim::SGD alone(masters.parameters(), options), one(of_reference.parameters(), options);
  ZeroRedundancyOptimizer optimizer(masters.parameters(), optimizer_maker<torch::optim::SGD>(options), process_group);
  const auto step_on = [&](const at::Tensor& batch) {
    half_loss(ddp(batch)).backward();
    masters.take_gradients();
    if (spread)
      optimizer.step();
    else
      alone.step();
    masters.give_parameters();
  };
  IsRounded rounded(masters, process_group);
  Join join(spread ? std::vector<std::reference_wrapper<Joinable>>{ddp.joinable(), optimizer, rounded}
                   : std::vector<std::reference_wrapper<Joinable>>{ddp.joinable(), masters.joinable(process_group)});
  for (int step = 0; step < batches_of(rank, way); ++step) step_on(half_batch(rank, step));
  join.finish();
  for (int step = 0; step < last_step(way); ++step) {
    std::vector<at::Tensor> batches;
    for (int other = 0; other < way.world; ++other)
      if (step < batches_of(other, way)) batches.push_back(half_batch(other, step));
    reference_step(reference, of_reference, one, batches);
  }
  const auto compare = [&](const std::string& when) {
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      require_close(masters.parameters()[i], of_reference.parameters()[i], fmt::format("{}, copy {}", when, i), 1e-6);
      require(torch::equal(net->parameters()[i], masters.parameters()[i].to(at::kBFloat16)),
              fmt::format("{}, parameter {} is not its copy, rounded", when, i));
    }
    require_equal_on_all(process_group, masters.parameters(), when + ", copies");
  };
  compare("at the end");
  // And they go on as ever.
  step_on(half_batch(rank, 40));
  std::vector<at::Tensor> batches;
  for (int other = 0; other < way.world; ++other) batches.push_back(half_batch(other, 40));
  reference_step(reference, of_reference, one, batches);
  compare("after the Join");
  return "went through";
}

}  // namespace

TEST_CASE("Join: float copies of half parameters are trained on ranks without a batch, too, and equal at the end") {
  for (const bool spread : {false, true})
    for (const int world : {2, 3})
      for (const bool first_ends_first : {false, true}) {
        const Way way{.world = world, .first_ends_first = first_ends_first};
        INFO(world << " ranks" << (first_ends_first ? ", rank 0 ends first" : "") << (spread ? ", spread" : ""));
        for (auto& said : spawn({.nprocs = world}, with_masters, ShmGroup(world), way, spread))
          CHECK(said == "went through");
      }
}

namespace {

/// A half-type module whose gradients are sharded, and one whose are not.
std::string sharded_masters(int rank, ShmGroup group, bool uneven) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net = make_net(at::kBFloat16), plain = make_net(at::kBFloat16);
  Ddp ddp({.bucket_bytes = 300, .first_bucket_bytes = 100}, net, process_group);
  Ddp without({.bucket_bytes = 300, .first_bucket_bytes = 100}, plain, process_group);
  FloatMasters masters(net->parameters()), of_plain(plain->parameters());
  const auto make = optimizer_maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01));
  ZeroRedundancyOptimizer optimizer(masters.parameters(), make, process_group);
  ZeroRedundancyOptimizer beside(of_plain.parameters(), make, process_group);
  ddp.shard_gradients(optimizer.owners());
  const auto step_on = [&](Ddp& model, FloatMasters& copies, ZeroRedundancyOptimizer& steps, int step) {
    half_loss(model(half_batch(rank, step))).backward();
    copies.take_gradients();
    steps.clip_grad_norm_(0.05);
    steps.step();
    copies.give_parameters();
  };
  Join join({ddp.joinable(), optimizer, without.joinable(), beside});
  for (int step = 0; step < (uneven ? 2 + 2 * rank : 5); ++step) {
    step_on(ddp, masters, optimizer, step);
    for (std::size_t i = 0; i < optimizer.owners().size(); ++i)
      require(masters.parameters()[i].grad().defined() == (optimizer.owners()[i].second == rank),
              "each rank has its part of the gradients alone");
    step_on(without, of_plain, beside, step);
  }
  join.finish();
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    require(torch::equal(masters.parameters()[i], of_plain.parameters()[i]), fmt::format("copy {}", i));
    require(torch::equal(net->parameters()[i], plain->parameters()[i]), fmt::format("parameter {}", i));
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: sharded gradients of a module with float copies give the numbers of whole ones, bit for bit") {
  // Over other numbers of ranks than a power of two, sharded gradients are divided before they are added.
  for (const int world : {2, 4})
    for (const bool uneven : {false, true}) {
      if (uneven && world > 2) continue;
      INFO(world << " ranks" << (uneven ? ", uneven" : ""));
      for (auto& said : spawn({.nprocs = world}, sharded_masters, ShmGroup(world), uneven))
        CHECK(said == "went through");
    }
}

}  // namespace zero_in_join_test
