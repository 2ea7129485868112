// Join: ranks with different numbers of batches.
#include <shoal/workers/train/join.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace join_test {

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(6, 5))),
        norm(register_module("norm", torch::nn::BatchNorm1d(5))),
        second(register_module("second", torch::nn::Linear(5, 3))),
        sometimes(register_module("sometimes", torch::nn::Linear(5, 3))) {
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool with_sometimes = true) {
    const at::Tensor inner = norm(first(x));
    return with_sometimes ? second(inner) + sometimes(inner) : second(inner);
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second, sometimes;
};
TORCH_MODULE(Net);

struct Way {
  bool find_unused = false;
  bool static_graph = false;
  bool hook = false;
  bool all_ranks = false;  // JoinMean::over_all_ranks
  bool accumulate = false;
  BufferSync buffers = BufferSync::broadcast_before;
  bool thread = false;
};

/// How many batches a rank has: rank 0 none in some of the cases.
int batches_of(int rank, int least) { return least + 2 * rank; }

/// Trains until all batches are used, and beside it one process that has those of all ranks in each step. Buffers of the
/// reference: each batch goes through the norm by itself, as it does on its rank.
std::string uneven(int rank, ShmGroup group, Way way, int least) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = way.thread ? Progress::thread : Progress::in_call});
  torch::manual_seed(rank);
  Net net, reference;
  DistributedDataParallel<Net> ddp({.bucket_bytes = 300,
                                    .first_bucket_bytes = 100,
                                    .find_unused_parameters = way.find_unused,
                                    .buffer_sync = way.buffers,
                                    .static_graph = way.static_graph},
                                   net, process_group);
  if (way.hook) ddp.register_comm_hook(all_reduce_hook(process_group));
  copy_values(*net, *reference);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::SGD of_reference(reference->parameters(), torch::optim::SGDOptions(0.1));
  const int world = group.world_size();
  const auto sometimes = [&](int step) { return !way.find_unused || step % 2 == 0; };
  const auto has = [&](int of_rank, int step) { return step < batches_of(of_rank, least); };
  Join join({ddp.joinable()}, {.mean = way.all_ranks ? JoinMean::over_all_ranks : JoinMean::over_ranks_with_data});
  for (int step = 0; has(world - 1, step); ++step) {
    if (!(way.accumulate && step % 2 == 1)) of_reference.zero_grad();
    int active = 0;
    for (int other = 0; other < world; ++other) active += has(other, step) ? 1 : 0;
    for (int other = 0; other < world; ++other)
      if (has(other, step))
        (loss_of(reference(batch_of(other, step), sometimes(step))) / (way.all_ranks ? world : active)).backward();
    // Under no_sync() steps add up, and the next one's mean is of the sum.
    if (way.accumulate && step % 2 == 0) continue;
    of_reference.step();
  }
  for (int step = 0; has(rank, step); ++step) {
    if (!(way.accumulate && step % 2 == 1)) optimizer.zero_grad();
    const auto pass = [&] { loss_of(ddp(batch_of(rank, step), sometimes(step))).backward(); };
    if (way.accumulate && step % 2 == 0) {
      auto local = ddp.no_sync();
      pass();
      continue;
    }
    pass();
    optimizer.step();
  }
  join.finish();
  for (const auto& item : reference->named_parameters())
    require_close(net->named_parameters()[item.key()], item.value(), item.key());
  // All have the buffers of one that did the last step.
  std::vector<at::Tensor> low{net->norm->running_mean.clone()}, high{low[0].clone()};
  process_group->allreduce(low, {.reduceOp = c10d::ReduceOp::MIN})->wait();
  process_group->allreduce(high, {.reduceOp = c10d::ReduceOp::MAX})->wait();
  require(torch::equal(low[0], high[0]), "the ranks' buffers differ");
  // And they go on as ever.
  optimizer.zero_grad();
  reference->zero_grad();
  loss_of(ddp(batch_of(rank, 40))).backward();
  for (int other = 0; other < world; ++other) (loss_of(reference(batch_of(other, 40))) / world).backward();
  require_same_gradients(*net, *reference, "after the Join");
  return "went through";
}

void check(Way way) {
  for (bool thread : {false, true})
    for (int least : {0, 2}) {
      way.thread = thread;
      INFO((thread ? "thread" : "in the call") << ", rank 0 has " << least << " batches");
      for (auto& said : spawn({.nprocs = 3}, uneven, ShmGroup(3), way, least)) CHECK(said == "went through");
    }
}

}  // namespace

TEST_CASE("Join: parameters are those of one process with the batches that there are in each step") { check({}); }
TEST_CASE("Join: the mean over all ranks counts those without a batch as zero") { check({.all_ranks = true}); }
TEST_CASE("Join: parameters may be unused in some steps") { check({.find_unused = true}); }
TEST_CASE("Join: a static graph is learnt by a rank that has no batch") { check({.static_graph = true}); }
TEST_CASE("Join: a communication hook is run by ranks without a batch, too") { check({.hook = true}); }
TEST_CASE("Join: averaged buffers are those of the ranks that have a batch") {
  check({.buffers = BufferSync::average_before});
  check({.buffers = BufferSync::average_after});
}

namespace {

std::string accumulating(int rank, ShmGroup group) { return uneven(rank, group, Way{.accumulate = true}, 2); }

/// The Adam of all parameters beside one whose state is spread over the ranks; the joined ranks step, too.
std::string with_zero(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(rank);
  Net net, reference;
  DistributedDataParallel<Net> ddp(net, process_group);
  copy_values(*net, *reference);
  const torch::optim::AdamOptions options = torch::optim::AdamOptions(0.01).weight_decay(0.01);
  ZeroRedundancyOptimizer optimizer(net->parameters(), optimizer_maker<torch::optim::Adam>(options), process_group);
  torch::optim::Adam of_reference(reference->parameters(), options);
  Join join({ddp.joinable(), optimizer});
  for (int step = 0; step < batches_of(rank, 1); ++step) {
    optimizer.zero_grad();
    loss_of(ddp(batch_of(rank, step))).backward();
    optimizer.step();
  }
  join.finish();
  for (int step = 0; step < batches_of(2, 1); ++step) {
    of_reference.zero_grad();
    int active = 0;
    for (int other = 0; other < 3; ++other) active += step < batches_of(other, 1) ? 1 : 0;
    for (int other = 0; other < 3; ++other)
      if (step < batches_of(other, 1)) (loss_of(reference(batch_of(other, step))) / active).backward();
    of_reference.step();
  }
  for (const auto& item : reference->named_parameters())
    require_close(net->named_parameters()[item.key()], item.value(), item.key());
  return "went through";
}

std::string throw_early(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  DistributedDataParallel<Net> ddp(net, process_group);
  int steps = 0;
  try {
    Join join({ddp.joinable()}, {.throw_when_one_ends = true});
    for (; steps < 2 + rank; ++steps) loss_of(ddp(batch_of(rank, steps))).backward();
    join.finish();
  } catch (const Error& error) {
    net->zero_grad();
    loss_of(ddp(batch_of(rank, 9))).backward();  // the group and the module can be used on
    return fmt::format("{} steps: {}", steps, error.what());
  }
  return "went through";
}

std::string differ_in_sync(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  Net net;
  DistributedDataParallel<Net> ddp(net, process_group);
  Join join({ddp.joinable()});
  try {
    if (rank == 0) {
      auto local = ddp.no_sync();
      ddp(batch_of(rank, 0));
    } else {
      ddp(batch_of(rank, 0));
    }
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

std::string die_in_join(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  DistributedDataParallel<Net> ddp(net, process_group);
  try {
    Join join({ddp.joinable()});
    for (int step = 0; step < 1 + 3 * rank; ++step) {
      if (step == 2) kill_at("group.signal.before", 1);
      loss_of(ddp(batch_of(rank, step))).backward();
    }
    join.finish();
  } catch (const PeerDied& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("Join: gradients may be accumulated under no_sync") {
  for (auto& said : spawn({.nprocs = 3}, accumulating, ShmGroup(3))) CHECK(said == "went through");
}

TEST_CASE("Join: a ZeroRedundancyOptimizer steps on ranks without a batch, so that no part of the model stays behind") {
  for (auto& said : spawn({.nprocs = 3}, with_zero, ShmGroup(3))) CHECK(said == "went through");
}

namespace {

/// Two batches a step; a rank that has ended steps when the others do, not in their passes without reduction.
std::string with_zero_accumulating(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Net net;
  DistributedDataParallel<Net> ddp(net, process_group);
  const torch::optim::AdamOptions options(0.01);
  ZeroRedundancyOptimizer optimizer(net->parameters(), optimizer_maker<torch::optim::Adam>(options), process_group);
  Join join({ddp.joinable(), optimizer});
  for (int step = 0; step < 1 + 2 * rank; ++step) {
    optimizer.zero_grad();
    {
      auto local = ddp.no_sync();
      loss_of(ddp(batch_of(rank, 2 * step))).backward();
    }
    loss_of(ddp(batch_of(rank, 2 * step + 1))).backward();
    optimizer.step();
  }
  join.finish();
  std::vector<std::vector<at::Tensor>> all(1);
  std::vector<at::Tensor> own{torch::nn::utils::parameters_to_vector(net->parameters()).detach()};
  for (int other = 0; other < group.world_size(); ++other) all[0].push_back(torch::empty_like(own[0]));
  process_group->allgather(all, own)->wait();
  for (const at::Tensor& theirs : all[0]) require(torch::equal(theirs, own[0]), "ranks have other parameters");
  return "went through";
}

}  // namespace

TEST_CASE("Join: a ZeroRedundancyOptimizer rests in passes under no_sync") {
  for (auto& said : spawn({.nprocs = 3}, with_zero_accumulating, ShmGroup(3))) CHECK(said == "went through");
}

TEST_CASE("Join: all ranks can be told as soon as one has no batch") {
  const auto said = spawn({.nprocs = 2}, throw_early, ShmGroup(2));
  for (auto& rank : said) CHECK_THAT(rank, ContainsSubstring("2 steps: rank 0 has no batch for step 2"));
}

TEST_CASE("Join: ranks that differ in no_sync are told") {
  for (auto& said : spawn({.nprocs = 2}, differ_in_sync, ShmGroup(2))) CHECK_THAT(said, ContainsSubstring("no_sync()"));
  CHECK_THROWS_AS(Join(std::vector<std::reference_wrapper<Joinable>>()), std::invalid_argument);
}

TEST_CASE("Join: when a rank that has batches is killed, those that have none get PeerDied") {
  ShmGroup group(2);
  std::vector<Process<std::string>> processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.emplace_back(ProcessOptions{.name = fmt::format("rank{}", rank)}, die_in_join, rank, group);
    processes.back().start();
  }
  CHECK_THAT(processes[0].result(), ContainsSubstring("rank 1") && ContainsSubstring("died"));
  processes[1].join();
  CHECK(processes[1].exitcode() == -SIGKILL);
}

namespace {

/// Rank 0 has no batch from the third step on. Rank 1's backward pass fails in the fourth, before the last bucket or behind
/// it, and goes on. What rank 1 was told.
std::vector<std::string> fail_beside_finish(int rank, ShmGroup group, bool behind_all, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(0);
  Net net;
  DistributedDataParallel<Net> ddp({.bucket_bytes = 300, .first_bucket_bytes = 100}, net, process_group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  std::vector<std::string> said;
  int stepped = 0;
  Join join({ddp.joinable()});
  for (int step = 0; step < (rank == 0 ? 2 : 20); ++step) {
    bool fails = rank == 1 && step == 3;
    const at::Tensor x = batch_of(rank, step).requires_grad_().sin();  // its gradient comes behind all parameters'
    const auto fail = [&](const at::Tensor& gradient) {
      if (std::exchange(fails, false)) throw std::runtime_error("this rank's own fault");
      return gradient;
    };
    const unsigned hook = (behind_all ? x : net->first->weight).register_hook(fail);
    try {
      optimizer.zero_grad();
      loss_of(ddp(x)).backward();
      optimizer.step();
      ++stepped;
    } catch (const std::exception& error) {
      said.emplace_back(error.what());
    }
    (behind_all ? x : net->first->weight).remove_hook(hook);
  }
  join.finish();
  require(stepped >= (rank == 0 ? 2 : 10), "the ranks never met again");
  std::vector<std::vector<at::Tensor>> all(1);
  std::vector<at::Tensor> own{torch::nn::utils::parameters_to_vector(net->parameters()).detach()};
  for (int other = 0; other < group.world_size(); ++other) all[0].push_back(torch::empty_like(own[0]));
  process_group->allgather(all, own)->wait();
  for (const at::Tensor& theirs : all[0]) require(torch::equal(theirs, own[0]), "ranks have other parameters");
  return said;
}

/// What a rank says in the log of a Join that it leaves in some way.
std::string leave_join(int rank, ShmGroup group, int way) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  DistributedDataParallel<Net> ddp(net, process_group);
  std::FILE* const file = std::tmpfile();
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  shoal::detail::threshold = int(LogLevel::kWarning);
  try {
    Join join({ddp.joinable()});
    loss_of(ddp(batch_of(rank, 0))).backward();
    if (way == 0) join.finish();
    if (way == 1) throw std::runtime_error("through the loop");
  } catch (const std::runtime_error&) {
  }
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("Join: a rank in finish() starts anew with one whose pass has failed") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (bool behind_all : {true, false}) {
    CAPTURE(int(progress), behind_all);
    const auto said = spawn({.nprocs = 2}, fail_beside_finish, ShmGroup(2), behind_all, progress);
    CHECK(said[0].empty());
    REQUIRE(said[1].size() >= 2);
    CHECK_THAT(said[1][0], ContainsSubstring("this rank's own fault"));
    CHECK_THAT(said[1][1], ContainsSubstring("where rank 0 called"));
  }
}

TEST_CASE("Join: a finish() that was forgotten is told in the log") {
  for (auto& said : spawn({.nprocs = 2}, leave_join, ShmGroup(2), 2))
    CHECK_THAT(said, ContainsSubstring("a Join ended without finish() after 1 steps"));
  for (int way : {0, 1})
    for (auto& said : spawn({.nprocs = 2}, leave_join, ShmGroup(2), way)) CHECK(said.empty());
}

}  // namespace join_test
