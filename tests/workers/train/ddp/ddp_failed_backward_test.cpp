// DDP where a backward pass ends by an exception.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace ddp_failed_backward_test {

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(6, 40))),
        norm(register_module("norm", torch::nn::BatchNorm1d(40))),
        second(register_module("second", torch::nn::Linear(40, 3))) {
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return second(norm(first(x))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(Net);

/// Rank's loss is rank + 1 times the same, so the mean of two ranks' gradients is 1.5 times one's own at rank 0.
at::Tensor loss_of(const at::Tensor& output, int rank) { return output.pow(2).mean() * (rank + 1); }

/// Trains until five steps were done. On the ranks that `failing` says, the third backward pass throws when the last
/// gradient of all comes, that is when some buckets were reduced already. What was said instead of going on.
std::vector<std::string> fail_once(int rank, ShmGroup group, std::vector<bool> failing, bool broadcast_buffers,
                                   Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(0);
  Net net;
  DistributedDataParallel<Net> ddp(
      DistributedDataParallelOptions{
          .bucket_bytes = 100, .first_bucket_bytes = 100, .broadcast_buffers = broadcast_buffers},
      net, process_group);
  at::Tensor x = torch::arange(48, at::kDouble).view({8, 6}).sin();
  bool fails = false;
  net->first->weight.register_hook([&](const at::Tensor& gradient) {
    if (std::exchange(fails, false)) throw std::runtime_error("this rank's own fault");
    return gradient;
  });
  std::vector<std::string> said;
  int done = 0;
  for (int step = 0; done < 5; ++step) {
    if (step == 2) fails = failing[std::size_t(rank)];
    if (step == 20) return {"it never went on"};
    try {
      net->zero_grad();
      loss_of(ddp.forward(x), rank).backward();
    } catch (const std::exception& error) {
      said.push_back(error.what());
      continue;
    }
    ++done;
    std::vector<at::Tensor> own = torch::autograd::grad({loss_of(net->forward(x), 0)}, net->parameters());
    for (std::size_t i = 0; i < own.size(); ++i)
      if (!torch::allclose(net->parameters()[i].grad(), own[i] * 1.5, 1e-9, 1e-12))
        return {fmt::format("step {}: gradient {} is wrong", step, i)};
  }
  return said;
}

/// On rank 1 the third backward pass throws behind the pass's last collective: all buckets were reduced, and rank 0's pass
/// is whole. What each rank was told before three passes in a row went through. `buffers`: -1 for none, otherwise a
/// BufferSync.
std::vector<std::string> fail_behind_all(int rank, ShmGroup group, int buffers, bool in_join, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::manual_seed(0);
  Net net;
  DistributedDataParallelOptions options{
      .bucket_bytes = 100, .first_bucket_bytes = 100, .broadcast_buffers = buffers >= 0};
  if (buffers >= 0) options.buffer_sync = BufferSync(buffers);
  DistributedDataParallel<Net> ddp(options, net, process_group);
  const at::Tensor base = torch::arange(48, at::kDouble).view({8, 6}).requires_grad_();
  bool fails = false;
  std::vector<std::string> said;
  const auto train = [&]() -> std::string {
    int in_a_row = 0;
    for (int step = 0; said.empty() || in_a_row < 3; ++step) {
      if (step == 30) return "it never went on";
      fails = rank == 1 && step == 2;
      // Made before the layers' results, so its gradient comes after all parameters'.
      const at::Tensor x = base.sin();
      x.register_hook([&](const at::Tensor& gradient) {
        if (std::exchange(fails, false)) throw std::runtime_error("this rank's own fault");
        return gradient;
      });
      try {
        net->zero_grad();
        loss_of(ddp.forward(x), rank).backward();
      } catch (const std::exception& error) {
        said.emplace_back(error.what());
        in_a_row = 0;
        continue;
      }
      ++in_a_row;
      const std::vector<at::Tensor> own = torch::autograd::grad({loss_of(net->forward(x), 0)}, net->parameters());
      for (std::size_t i = 0; i < own.size(); ++i)
        if (!torch::allclose(net->parameters()[i].grad(), own[i] * 1.5, 1e-9, 1e-12))
          return fmt::format("step {}: gradient {} is wrong", step, i);
    }
    return "went on";
  };
  std::string end;
  if (in_join) {
    Join join({ddp.joinable()});
    end = train();
    if (end == "went on") join.finish();
  } else {
    end = train();
  }
  said.push_back(end);
  return said;
}

struct LookUpImpl : torch::nn::Module {
  LookUpImpl() : rows(register_parameter("rows", torch::randn({10, 4}))) {}
  at::Tensor forward(const at::Tensor& x) { return torch::embedding(rows, x, -1, false, /*sparse=*/is_training()); }
  at::Tensor rows;
};
TORCH_MODULE(LookUp);

std::string sparse_gradient(int rank, ShmGroup group, bool is_sparse, bool announced) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  LookUp net;
  net->train(is_sparse);
  std::vector<std::string> sparse;
  if (announced) sparse.emplace_back("rows");
  DistributedDataParallel<LookUp> ddp({.sparse = sparse}, net, process_group);
  try {
    ddp.forward(torch::tensor({1, 2, rank})).sum().backward();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: after an exception in backward() on all ranks the next step is right") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (bool broadcast_buffers : {true, false})
    for (auto& said :
         spawn({.nprocs = 2}, fail_once, ShmGroup(2), std::vector<bool>{true, true}, broadcast_buffers, progress)) {
      REQUIRE(said.size() == 1);
      CHECK_THAT(said[0], ContainsSubstring("this rank's own fault"));
    }
}

TEST_CASE("DDP: after an exception in one rank's backward() all ranks are told, and meet again") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (bool broadcast_buffers : {true, false}) {
    auto said =
        spawn({.nprocs = 2}, fail_once, ShmGroup(2), std::vector<bool>{false, true}, broadcast_buffers, progress);
    REQUIRE(!said[0].empty());
    CHECK_THAT(said[0][0], ContainsSubstring("where rank 1 called barrier"));
    CHECK_THAT(said[1][0], ContainsSubstring("this rank's own fault"));
    CHECK(said[0].back().find("called") != std::string::npos);
  }
}

TEST_CASE("DDP: ranks whose pass was whole meet one whose pass has failed, whatever their next collective is") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  const bool in_join = GENERATE(false, true);
  for (int buffers = -1; buffers <= int(BufferSync::average_after); ++buffers) {
    CAPTURE(int(progress), in_join, buffers);
    const auto said = spawn({.nprocs = 2}, fail_behind_all, ShmGroup(2), buffers, in_join, progress);
    for (const std::vector<std::string>& of_rank : said) CHECK(of_rank.back() == "went on");
    REQUIRE(said[0].size() >= 2);
    CHECK_THAT(said[0][0], ContainsSubstring("where rank 1 called barrier"));
    CHECK_THAT(said[1][0], ContainsSubstring("this rank's own fault"));
  }
}

TEST_CASE("DDP: a gradient that is sparse or dense unannounced is refused by the parameter's name, with what to do") {
  for (auto& said : spawn({.nprocs = 2}, sparse_gradient, ShmGroup(2), true, false))
    CHECK_THAT(said, ContainsSubstring("the gradient of rows is Sparse") && ContainsSubstring("Options::sparse"));
  for (auto& said : spawn({.nprocs = 2}, sparse_gradient, ShmGroup(2), false, true))
    CHECK_THAT(said, ContainsSubstring("the gradient of rows is Strided") && ContainsSubstring("was announced"));
  for (auto& said : spawn({.nprocs = 2}, sparse_gradient, ShmGroup(2), true, true)) CHECK(said == "went through");
}

}  // namespace ddp_failed_backward_test
