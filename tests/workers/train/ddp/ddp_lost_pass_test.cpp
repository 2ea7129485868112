// DDP where a rank begins a pass that brings no gradients: an exception in the loss, or in forward().
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/communicator.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>
#include <shoal/workers/train/process_group_parts.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace ddp_lost_pass_test {

namespace {

enum class Fault { in_forward, before_backward, in_backward_before_gradients, in_last_batch };

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(6, 40))),
        second(register_module("second", torch::nn::Linear(40, 3))) {
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    if (std::exchange(fails, false)) throw std::runtime_error("this rank's own fault");
    return second(first(x).tanh());
  }
  torch::nn::Linear first, second;
  bool fails = false;
};
TORCH_MODULE(Net);

DistributedDataParallelOptions small_buckets() { return {.bucket_bytes = 100, .first_bucket_bytes = 100}; }

/// Rank's loss is rank + 1 times the same, so the mean of two ranks' gradients is 1.5 times one's own at rank 0.
at::Tensor loss_of(const at::Tensor& output, int rank) { return output.pow(2).mean() * (rank + 1); }

/// Whether the gradients are those of one step of both ranks.
bool are_right(Net& net, const at::Tensor& x) {
  const std::vector<at::Tensor> own = torch::autograd::grad({loss_of(net->forward(x), 0)}, net->parameters());
  for (std::size_t i = 0; i < own.size(); ++i)
    if (!torch::allclose(net->parameters()[i].grad(), own[i] * 1.5, 1e-9, 1e-12)) return false;
  return true;
}

at::Tensor batch_of(int step) { return (torch::arange(48, at::kDouble).view({8, 6}) + step).sin(); }

/// A pass with this fault.
void fail(DistributedDataParallel<Net>& ddp, int rank, Fault fault, const at::Tensor& x) {
  ddp.module().fails = fault == Fault::in_forward;
  at::Tensor loss = loss_of(ddp.forward(x), rank);
  if (fault == Fault::in_backward_before_gradients)
    loss.register_hook([](const at::Tensor& gradient) -> at::Tensor {
      if (gradient.defined()) throw std::runtime_error("this rank's own fault");
      return gradient;
    });
  else
    throw std::runtime_error("this rank's own fault");
  loss.backward();
}

/// Rank 1 loses its pass of step 3 and goes on. Both train until each has had five steps whose gradients were right after
/// it; what each was told, and how it ended.
std::vector<std::string> lose_one(int rank, ShmGroup group, Fault fault, bool in_join, bool unused, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(0);
  Net net;
  DistributedDataParallelOptions options = small_buckets();
  options.find_unused_parameters = unused;
  DistributedDataParallel<Net> ddp(options, net, process_group);
  std::optional<Join> join;
  if (in_join) join.emplace(std::vector<std::reference_wrapper<Joinable>>{ddp.joinable()});
  std::vector<std::string> said;
  const at::Tensor x = batch_of(0);
  int in_a_row = 0;
  for (int step = 0; said.empty() || in_a_row < 5; ++step) {
    if (step == 30) return {"it never went on"};
    try {
      net->zero_grad();
      if (rank == 1 && step == 3)
        fail(ddp, rank, fault, x);
      else
        loss_of(ddp.forward(x), rank).backward();
    } catch (const std::exception& error) {
      said.emplace_back(error.what());
      in_a_row = 0;
      if (rank == 1 && fault == Fault::in_last_batch) break;
      continue;
    }
    if (rank == 0 && fault == Fault::in_last_batch && !said.empty()) break;  // alone, its gradients are its own
    ++in_a_row;
    if (!are_right(net, x)) return {fmt::format("step {}: wrong gradients", step)};
  }
  if (join) join->finish();
  said.emplace_back("went on");
  return said;
}

/// Rank 0 looks at a result by itself, with gradients enabled.
std::vector<std::string> look_alone(int rank, ShmGroup group, bool guarded) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Net net;
  DistributedDataParallel<Net> ddp(small_buckets(), net, process_group);
  const at::Tensor x = batch_of(0);
  std::vector<std::string> said;
  for (int step = 0; step < 6; ++step) {
    if (rank == 0 && step == 3) {
      at::AutoGradMode mode(!guarded);
      ddp.forward(x);
    }
    try {
      net->zero_grad();
      loss_of(ddp.forward(x), rank).backward();
      if (!are_right(net, x)) return {"wrong gradients"};
    } catch (const CollectiveMismatch& error) {
      said.emplace_back(error.what());
    }
  }
  return said;
}

/// Rank 0 evaluates a model with buffers, with gradients enabled, while the other one waits for it in a barrier.
std::string evaluate_alone(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::nn::BatchNorm1d norm(6);
  DistributedDataParallel<torch::nn::BatchNorm1d> ddp({}, norm, process_group);
  try {
    for (int step = 0; step < 3; ++step) ddp.forward(torch::randn({4, 6})).pow(2).sum().backward();
    if (rank == 0) ddp.forward(torch::ones({4, 6}));
    process_group->barrier()->wait();
  } catch (const CollectiveMismatch& error) {
    return error.what();
  }
  return "went through";
}

/// Two models of equal sizes; rank 1 loses a pass of one of them, the first or the second, and goes on with the other.
std::vector<std::string> lose_one_of_two(int rank, ShmGroup group, int which, bool in_join, bool late,
                                         Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(0);
  Net nets[2];
  std::vector<std::unique_ptr<DistributedDataParallel<Net>>> ddps;
  for (Net& net : nets)
    ddps.push_back(std::make_unique<DistributedDataParallel<Net>>(small_buckets(), net, process_group));
  std::optional<Join> join;
  if (in_join) join.emplace(std::vector<std::reference_wrapper<Joinable>>{ddps[0]->joinable(), ddps[1]->joinable()});
  std::vector<std::string> said;
  int in_a_row = 0;
  for (int step = 0; said.empty() || in_a_row < 5; ++step) {
    if (step == 40) return {"it never went on"};
    try {
      for (int i = 0; i < 2; ++i) {
        const at::Tensor x = batch_of(i);
        nets[i]->zero_grad();
        if (rank == 1 && step == 3 && i == which) {
          if (late) {
            // When all of its gradients but the first layer's are there.
            at::Tensor loss = loss_of(ddps[std::size_t(i)]->forward(x), rank);
            const unsigned hook = nets[i]->first->weight.register_hook([](const at::Tensor& gradient) -> at::Tensor {
              if (gradient.defined()) throw std::runtime_error("this rank's own fault");
              return gradient;
            });
            try {
              loss.backward();
            } catch (...) {
              nets[i]->first->weight.remove_hook(hook);
              throw;
            }
          }
          fail(*ddps[std::size_t(i)], rank, Fault::before_backward, x);
        }
        loss_of(ddps[std::size_t(i)]->forward(x), rank).backward();
      }
    } catch (const std::exception& error) {
      said.emplace_back(error.what());
      in_a_row = 0;
      continue;
    }
    ++in_a_row;
    for (int i = 0; i < 2; ++i)
      if (!are_right(nets[i], batch_of(i))) return {fmt::format("step {}: wrong gradients", step)};
  }
  if (join) join->finish();
  said.emplace_back("went on");
  return said;
}

/// Rank 0 has no more batches when a pass of rank 1's second model fails.
std::vector<std::string> fail_while_other_finishes(int rank, ShmGroup group, int which) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Net nets[2];
  std::vector<std::unique_ptr<DistributedDataParallel<Net>>> ddps;
  for (Net& net : nets)
    ddps.push_back(std::make_unique<DistributedDataParallel<Net>>(small_buckets(), net, process_group));
  Join join({ddps[0]->joinable(), ddps[1]->joinable()});
  std::vector<std::string> said;
  const int steps = rank == 0 ? 2 : 9;
  for (int step = 0; step < steps; ++step) try {
      for (int i = 0; i < 2; ++i) {
        nets[i]->zero_grad();
        if (rank == 1 && step == 4 && i == which)
          fail(*ddps[std::size_t(i)], rank, Fault::before_backward, batch_of(i));
        loss_of(ddps[std::size_t(i)]->forward(batch_of(i)), 0).backward();
      }
    } catch (const std::exception& error) {
      said.emplace_back(error.what());
    }
  join.finish();
  for (int i = 0; i < 2; ++i) {
    const std::vector<at::Tensor> own =
        torch::autograd::grad({loss_of(nets[i]->forward(batch_of(i)), 0)}, nets[i]->parameters());
    for (std::size_t k = 0; k < own.size(); ++k)
      if (!torch::allclose(nets[i]->parameters()[k].grad(), own[k], 1e-9, 1e-12)) return {"wrong gradients"};
  }
  said.emplace_back("went on");
  return said;
}

/// Rank 1 gives an all-to-all what makes no sense. The model starts anew by that on both, and no pass is
/// lost.
std::string refuse_alone(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(0);
  Net net;
  DistributedDataParallel<Net> ddp(small_buckets(), net, process_group);
  int told = 0;
  for (int step = 0; step < 6; ++step) {
    net->zero_grad();
    loss_of(ddp.forward(batch_of(0)), rank).backward();
    if (!are_right(net, batch_of(0))) return "wrong gradients";
    std::vector<at::Tensor> outputs{torch::zeros({2}), torch::zeros({2})}, inputs{torch::zeros({2}), torch::zeros({2})};
    if (rank == 1 && step % 2 == 0) inputs.pop_back();
    try {
      process_group->alltoall(outputs, inputs)->wait();
    } catch (const CollectiveMismatch&) {
      ++told;
    }
  }
  return told == 3 ? "went through" : fmt::format("told {} times", told);
}

struct NormedImpl : torch::nn::Module {
  NormedImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return norm(first(x)); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 20))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(20))};
};
TORCH_MODULE(Normed);

/// Rank 0 accumulates two batches, rank 1 has one: what they were told.
std::vector<std::string> accumulate_unevenly(int rank, ShmGroup group, bool buffers) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Normed net;
  DistributedDataParallelOptions options = small_buckets();
  options.broadcast_buffers = buffers;
  DistributedDataParallel<Normed> ddp(options, net, process_group);
  std::vector<std::string> said;
  for (int step = 0; step < 4; ++step) try {
      net->zero_grad();
      if (rank == 0) {
        const auto none = ddp.no_sync();
        loss_of(ddp.forward(batch_of(step)), rank).backward();
      }
      loss_of(ddp.forward(batch_of(step + 7)), rank).backward();
    } catch (const std::exception& error) {
      said.emplace_back(error.what());
    }
  return said;
}

/// Rank 1 loses a pass within its part of the ranks; the others hear of it where all are averaged. How many steps went well.
int lose_one_in_a_part(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto world = init_process_group(group, rank);
  auto part = split(world, rank / 2, 0);
  torch::manual_seed(0);
  Net net;
  DistributedDataParallel<Net> ddp(small_buckets(), net, world);
  ddp.register_comm_hook(local_sgd_hook(world, {.start_step = 1, .part = part}));
  PeriodicAverager averager(world, {.period = 4, .warm_up = 1});
  int good = 0;
  for (int step = 0; step < 40; ++step) try {
      net->zero_grad();
      const at::Tensor output = ddp.forward(batch_of(0));
      if (rank == 1 && step == 3) throw std::runtime_error("this rank's own fault");
      loss_of(output, 0).backward();
      averager.average(net->parameters());
      ++good;
    } catch (const PeerDied&) {
      break;  // who has lost fewer steps ends first
    } catch (const std::exception&) {
    }
  return good;
}

/// Models of a part of the ranks, of which one part has more; a hook reduces over all ranks.
std::string reduce_over_another_group(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto world = init_process_group(group, rank);
  auto part = split(world, rank / 2, 0);
  torch::manual_seed(0);
  Net net, another;
  std::optional<DistributedDataParallel<Net>> more;
  if (rank < 2) more.emplace(small_buckets(), another, part);
  DistributedDataParallel<Net> ddp(small_buckets(), net, part);
  ddp.register_comm_hook(all_reduce_hook(world));
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    loss_of(ddp.forward(batch_of(0)), 0).backward();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: a pass that brings no gradients on one rank is told to all, who start anew") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  const bool in_join = GENERATE(false, true);
  for (const bool unused : {false, true})
    for (const Fault fault : {Fault::in_forward, Fault::before_backward, Fault::in_backward_before_gradients}) {
      CAPTURE(int(progress), in_join, unused, int(fault));
      const auto said = spawn({.nprocs = 2}, lose_one, ShmGroup(2), fault, in_join, unused, progress);
      for (const std::vector<std::string>& of_rank : said) {
        REQUIRE(of_rank.size() >= 2);
        CHECK(of_rank.back() == "went on");
      }
      CHECK_THAT(said[1][0], ContainsSubstring("this rank's own fault"));
      if (in_join)  // the next meeting tells
        CHECK_THAT(said[0][0], ContainsSubstring("rank 1 called"));
      else
        CHECK_THAT(said[0][0], ContainsSubstring("rank 1 is ahead: a pass that it began has brought no gradients") &&
                                   ContainsSubstring("in forward pass 4 of DistributedDataParallel where rank 1"));
    }
}

TEST_CASE("DDP: a rank whose last pass brought no gradients meets the others in finish()") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  const auto said = spawn({.nprocs = 2}, lose_one, ShmGroup(2), Fault::in_last_batch, true, false, progress);
  CHECK(said[0].back() == "went on");
  CHECK(said[1] == std::vector<std::string>{"this rank's own fault", "went on"});
}

TEST_CASE("DDP: forward() on one rank alone is told, unless it is without gradients") {
  for (const auto& said : spawn({.nprocs = 2}, look_alone, ShmGroup(2), true)) CHECK(said.empty());
  for (const auto& said : spawn({.nprocs = 2}, look_alone, ShmGroup(2), false)) {
    REQUIRE(said.size() == 1);
    CHECK_THAT(said[0], ContainsSubstring("rank 0 is ahead") && ContainsSubstring("takes a NoGradGuard"));
  }
}

TEST_CASE("DDP: a rank that evaluates alone while the others wait elsewhere hears of the NoGradGuard") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (const std::string& said : spawn({.nprocs = 2}, evaluate_alone, ShmGroup(2), progress))
    CHECK_THAT(said, ContainsSubstring("rank 0 is in a pass of DistributedDataParallel, and rank 1 in none") &&
                         ContainsSubstring("takes a NoGradGuard"));
}

TEST_CASE("DDP: of two models in a group, and in a Join, either may lose a pass on one rank") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  const bool in_join = GENERATE(false, true);
  for (const bool late : {false, true})
    for (const int which : {0, 1}) {
      CAPTURE(int(progress), in_join, late, which);
      const auto said = spawn({.nprocs = 2}, lose_one_of_two, ShmGroup(2), which, in_join, late, progress);
      for (const std::vector<std::string>& of_rank : said) {
        REQUIRE(of_rank.size() >= 2);
        CHECK(of_rank.back() == "went on");
      }
      CHECK_THAT(said[1][0], ContainsSubstring("this rank's own fault"));
    }
}

TEST_CASE("DDP: of two models in a Join, one loses a pass while another rank has no batch") {
  for (const int which : {0, 1}) {
    CAPTURE(which);
    const auto said = spawn({.nprocs = 2}, fail_while_other_finishes, ShmGroup(2), which);
    CHECK(said[0] == std::vector<std::string>{"went on"});
    CHECK(said[1].front() == "this rank's own fault");
    CHECK(said[1].back() == "went on");
  }
}

TEST_CASE("DDP: ranks may accumulate over different numbers of batches") {
  for (const bool buffers : {false, true})
    for (const auto& said : spawn({.nprocs = 2}, accumulate_unevenly, ShmGroup(2), buffers)) CHECK(said.empty());
}

TEST_CASE("DDP: ranks that reduce in parts meet again after one of them has lost a pass") {
  for (const int good : spawn({.nprocs = 4}, lose_one_in_a_part, ShmGroup(4))) CHECK(good >= 30);
}

TEST_CASE("DDP: a hook may reduce over a group in which ranks have made other models") {
  for (const std::string& said : spawn({.nprocs = 4}, reduce_over_another_group, ShmGroup(4)))
    CHECK(said == "went through");
}

TEST_CASE("DDP: a collective that one rank refuses costs no rank a pass") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (const std::string& said : spawn({.nprocs = 2}, refuse_alone, ShmGroup(2), progress))
    CHECK(said == "went through");
}

}  // namespace ddp_lost_pass_test
