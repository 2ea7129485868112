// Random exceptions of ranks in the passes of several models of a group: ranks meet again whatever has failed where.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;
using namespace shoal::test;

namespace lost_pass_walk_test {

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 20))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(20, 6))};
};
TORCH_MODULE(Net);

at::Tensor batch_of(int step) { return (torch::arange(48, at::kDouble).view({8, 6}) + step).sin(); }
at::Tensor loss_of(const at::Tensor& output) { return output.pow(2).mean(); }

/// How the models' passes follow each other.
enum class Pattern { one_after_the_other, chained, summed };

/// Where a rank throws in a step, in which model: in the loss, when the model's results get their gradient, or when the last
/// layer does, behind other gradients.
struct Fault {
  enum Where { nowhere, in_loss, before_gradients, behind_gradients } where = nowhere;
  int model = 0;
};

struct Throws : torch::autograd::Function<Throws> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw std::runtime_error("this rank's own fault");
  }
};

enum class Hook { none, power_sgd, top_k };

struct Walk {
  Pattern pattern = Pattern::chained;
  int models = 1;
  bool in_join = false;
  Hook hook = Hook::none;
  std::vector<std::vector<Fault>> faults;  // of each rank, by step
  std::vector<bool> by_thread;             // of each rank
};

template <class Random>
Walk draw(Random& random, int ranks, int steps) {
  Walk walk{.pattern = Pattern(random() % 3),
            .models = 1 + int(random() % 3),
            .in_join = random() % 2 == 0,
            .hook = Hook(random() % 6 < 4 ? 0 : 1 + random() % 2),
            .faults = std::vector<std::vector<Fault>>(std::size_t(ranks)),
            .by_thread = {}};
  for (std::vector<Fault>& of_rank : walk.faults) {
    walk.by_thread.push_back(random() % 2 == 0);
    for (int step = 0; step < steps; ++step)
      of_rank.push_back(step > 1 && random() % 7 == 0
                            ? Fault{Fault::Where(1 + random() % 3), int(random() % unsigned(walk.models))}
                            : Fault{});
  }
  return walk;
}

/// The models of one rank.
class Training {
 public:
  Training(int rank, const ShmGroup& group, const Walk& walk)
      : walk_(walk),
        rank_(rank),
        process_group_(init_process_group(
            group, rank, {.progress = walk.by_thread[std::size_t(rank)] ? Progress::thread : Progress::in_call})) {
    torch::manual_seed(0);
    for (int model = 0; model < walk.models; ++model) {
      nets_.emplace_back();
      ddps_.push_back(std::make_unique<DistributedDataParallel<Net>>(
          DistributedDataParallelOptions{.bucket_bytes = 100, .first_bucket_bytes = 100}, nets_.back(),
          process_group_));
      if (walk.hook == Hook::power_sgd)
        ddps_.back()->register_comm_hook(power_sgd_hook(process_group_, {.rank = 1, .start_step = 2}));
      if (walk.hook == Hook::top_k)
        ddps_.back()->register_comm_hook(top_k_hook(process_group_, {.fraction = 0.5, .start_step = 2}));
      for (const at::Tensor& parameter : nets_.back()->parameters()) parameters_.push_back(parameter);
    }
  }

  /// The gradients of one step of all models, on this rank's batch: rank + 1 times the same.
  void step(const Fault& fault) {
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    std::vector<std::pair<at::Tensor, unsigned>> hooks;
    const std::shared_ptr<void> no_hooks(nullptr, [&](void*) {
      for (auto& [tensor, hook] : hooks) tensor.remove_hook(hook);
    });
    backward([&](int model, const at::Tensor& x) {
      const bool here = fault.where != Fault::nowhere && fault.model == model;
      if (here && fault.where == Fault::behind_gradients) {
        at::Tensor last = nets_[std::size_t(model)]->first->weight;
        hooks.emplace_back(last, last.register_hook([](const at::Tensor& gradient) -> at::Tensor {
          if (gradient.defined()) throw std::runtime_error("this rank's own fault");
          return gradient;
        }));
      }
      at::Tensor output = ddps_[std::size_t(model)]->forward(x);
      if (here && fault.where == Fault::in_loss) throw std::runtime_error("this rank's own fault");
      return here && fault.where == Fault::before_gradients ? Throws::apply(output) : output;
    });
  }

  /// Whether the gradients are the mean of all ranks'. Hooks that leave something out have others.
  bool are_right() {
    if (walk_.hook != Hook::none) return true;
    std::vector<at::Tensor> reduced;
    for (at::Tensor& parameter : parameters_) reduced.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
    backward([&](int model, const at::Tensor& x) { return nets_[std::size_t(model)]->forward(x); });
    const double mean = (process_group_->getSize() + 1) / 2.0 / (rank_ + 1);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (!torch::allclose(reduced[i], parameters_[i].grad() * mean, 1e-9, 1e-12)) return false;
    return true;
  }

  std::vector<std::reference_wrapper<Joinable>> joinables() {
    std::vector<std::reference_wrapper<Joinable>> all;
    for (auto& ddp : ddps_) all.emplace_back(ddp->joinable());
    return all;
  }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const { return process_group_; }

 private:
  void backward(const std::function<at::Tensor(int, const at::Tensor&)>& forward) {
    at::Tensor x = batch_of(0), sum = torch::zeros({}, at::kDouble);
    for (int model = 0; model < walk_.models; ++model) {
      const at::Tensor output = forward(model, walk_.pattern == Pattern::chained ? x : batch_of(model));
      if (walk_.pattern == Pattern::one_after_the_other)
        (loss_of(output) * (rank_ + 1)).backward();
      else if (walk_.pattern == Pattern::chained)
        x = output;
      else
        sum = sum + loss_of(output);
    }
    if (walk_.pattern == Pattern::chained) sum = loss_of(x);
    if (walk_.pattern != Pattern::one_after_the_other) (sum * (rank_ + 1)).backward();
  }

  Walk walk_;
  int rank_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  std::vector<Net> nets_;
  std::vector<std::unique_ptr<DistributedDataParallel<Net>>> ddps_;
  std::vector<at::Tensor> parameters_;
};

/// Until some steps in a row had the right gradients on this rank, and so on all.
std::string train(int rank, const ShmGroup& group, const Walk& walk) {
  Training training(rank, group, walk);
  std::optional<Join> join;
  if (walk.in_join) join.emplace(training.joinables());
  const std::vector<Fault>& faults = walk.faults[std::size_t(rank)];
  std::string last;
  int in_a_row = 0;
  for (int step = 0; in_a_row < 10; ++step) {
    if (step == 60) return "it never went on: " + last;
    try {
      training.step(std::size_t(step) < faults.size() ? faults[std::size_t(step)] : Fault{});
    } catch (const PeerDied&) {
      throw;
    } catch (const std::exception& error) {
      last = error.what();
      in_a_row = 0;
      continue;
    }
    if (!training.are_right()) return fmt::format("step {}: wrong gradients", step);
    ++in_a_row;
  }
  if (join) join->finish();
  return "went on";
}

/// Each rank has as many batches as faults are drawn for it, in two Joins one after the other, and an optimizer that is sharded.
std::string train_uneven(int rank, const ShmGroup& group, const Walk& walk) {
  Training training(rank, group, walk);
  ZeroRedundancyOptimizer optimizer(training.parameters(),
                                    optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(0.01)),
                                    training.process_group());
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto joinables = training.joinables();
    joinables.emplace_back(optimizer);
    Join join(joinables);
    for (const Fault& fault : walk.faults[std::size_t(rank)]) try {
        training.step(fault);
        optimizer.step();
      } catch (const PeerDied&) {
        throw;
      } catch (const std::exception&) {
      }
    join.finish();
    for (const at::Tensor& parameter : training.parameters()) {
      std::vector<at::Tensor> least{parameter.detach().clone()};
      training.process_group()->allreduce(least, {.reduceOp = c10d::ReduceOp::MIN})->wait();
      if (!at::equal(least[0], parameter.detach())) return "parameters differ after the Join";
    }
  }
  return "went on";
}

/// The seed, so that nothing of the walk has to cross.
std::string walk_of_seed(int rank, ShmGroup group, unsigned seed, bool uneven) {
  at::set_num_threads(1);
  std::mt19937 random(seed);
  Walk walk = draw(random, group.world_size(), 7);
  if (!uneven) return train(rank, group, walk);
  for (std::vector<Fault>& of_rank : walk.faults) of_rank.resize(random() % 9);
  return train_uneven(rank, group, walk);
}

}  // namespace

TEST_CASE("DDP: whatever ranks' passes fail at, of several models, in a Join or not, they meet again") {
  for (unsigned seed = 0; seed < 24U * unsigned(test_scale()); ++seed) {
    const int ranks = 2 + int(seed % 2);
    CAPTURE(seed);
    for (const std::string& said : spawn({.nprocs = ranks}, walk_of_seed, ShmGroup(ranks), seed, false))
      CHECK(said == "went on");
  }
}

TEST_CASE("Join: whatever ranks' passes fail at, with unequal numbers of batches, they end with equal parameters") {
  for (unsigned seed = 0; seed < 12U * unsigned(test_scale()); ++seed) {
    const int ranks = 2 + int(seed % 2);
    CAPTURE(seed);
    for (const std::string& said : spawn({.nprocs = ranks}, walk_of_seed, ShmGroup(ranks), seed, true))
      CHECK(said == "went on");
  }
}

}  // namespace lost_pass_walk_test
