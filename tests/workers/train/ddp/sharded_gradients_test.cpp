// DDP whose ranks keep the gradients of their own parameters alone, beside plain DDP.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>
#include <shoal/workers/train/zero_redundancy_optimizer.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"
#include "tests/workers/train/optim/optimizer_kinds.h"

using namespace shoal;
using namespace shoal::test;

namespace sharded_gradients_test {

namespace {

/// Throws in its backward pass if it is told to.
struct Trap : torch::autograd::Function<Trap> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, bool armed) {
    context->saved_data["armed"] = armed;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (context->saved_data["armed"].toBool()) throw std::runtime_error("trapped");
    return {gradients[0], at::Tensor()};
  }
};

/// Layers of unequal size, one of them perhaps unused, a parameter whose memory is not in rows, and a table of words.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool sparse = false)
      : words(register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 6).sparse(sparse)))),
        first(register_module("first", torch::nn::Linear(6, 40))),
        second(register_module("second", torch::nn::Linear(40, 30))),
        other(register_module("other", torch::nn::Linear(40, 30))),
        turned(register_parameter("turned", torch::randn({7, 30}).t())),
        last(register_module("last", torch::nn::Linear(7, 3))) {
    to(at::kDouble);
    turned = named_parameters(false)["turned"];
  }
  at::Tensor forward(const at::Tensor& x, int step, bool armed = false) {
    const at::Tensor numbers = torch::arange(x.size(0)) % 5 + step % 7;
    const at::Tensor inner = Trap::apply(torch::tanh(first(x + words(numbers))), armed);
    const at::Tensor both = use_other && step % 2 == 1 ? other(inner) : second(inner);
    return last(torch::tanh(use_other ? both : both + other(inner)).matmul(turned));
  }
  torch::nn::Embedding words;
  torch::nn::Linear first, second, other;
  at::Tensor turned;
  torch::nn::Linear last;
  bool use_other = false;  // in odd steps, and only then
};
TORCH_MODULE(Net);
using Ddp = DistributedDataParallel<Net>;

struct Case {
  Kind kind = Kind::sgd;
  std::int64_t bucket_bytes = 25 << 20;
  Progress progress = Progress::in_call;
  bool find_unused = false, static_graph = false, sparse = false;
};

/// One model with sharded gradients, and one without, on the same data.
struct Pair {
  Pair(int rank, const ShmGroup& group, const Case& what)
      : process_group(init_process_group(group, rank, {.progress = what.progress})),
        rank(rank),
        net((torch::manual_seed(rank), Net(what.sparse))),
        plain((torch::manual_seed(rank), Net(what.sparse))),
        ddp(options(what), net, process_group),
        without(options(what), plain, process_group),
        optimizer(net->parameters(), maker(what.kind), process_group),
        of_plain(maker(what.kind)(ParameterGroups{torch::optim::OptimizerParamGroup(plain->parameters())})) {
    net->use_other = plain->use_other = what.find_unused;
    ddp.shard_gradients(optimizer.owners());
  }
  static DistributedDataParallelOptions options(const Case& what) {
    return {.bucket_bytes = what.bucket_bytes,
            .first_bucket_bytes = what.bucket_bytes,
            .find_unused_parameters = what.find_unused,
            .static_graph = what.static_graph};
  }
  void backward(int step) {
    loss_of(ddp.forward(batch_of(rank, step), step)).backward();
    loss_of(without.forward(batch_of(rank, step), step)).backward();
  }
  /// Own gradients are those of plain DDP, and there are no others.
  void compare_gradients(const std::string& what, double tolerance) {
    const auto owners = optimizer.owners();
    const auto names = plain->named_parameters();
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const at::Tensor& gradient = owners[i].first.grad();
      const at::Tensor& wanted = plain->parameters()[i].grad();
      const std::string name = fmt::format("{}, gradient of {}", what, names[i].key());
      if (owners[i].second == rank || (wanted.defined() && wanted.is_sparse())) {
        if (tolerance == 0)
          require(gradient.defined() == wanted.defined() &&
                      (!wanted.defined() || (wanted.is_sparse() ? torch::equal(gradient.to_dense(), wanted.to_dense())
                                                                : torch::equal(gradient, wanted))),
                  name);
        else
          require_close(gradient, wanted, name, tolerance);
        require(!gradient.defined() || gradient.is_sparse() || gradient.strides() == wanted.strides(),
                name + ": strides");
      } else {
        require(!gradient.defined(), name + ", which is another rank's, is there");
      }
    }
  }
  void compare_parameters(const std::string& what, double tolerance) {
    for (std::size_t i = 0; i < net->parameters().size(); ++i)
      require_close(net->parameters()[i].detach(), plain->parameters()[i].detach(), what, tolerance);
  }
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  int rank;
  Net net, plain;
  Ddp ddp, without;
  ZeroRedundancyOptimizer optimizer;
  std::unique_ptr<torch::optim::Optimizer> of_plain;
};

std::string same_numbers(int rank, ShmGroup group, Case what) {
  at::set_num_threads(1);
  Pair pair(rank, group, what);
  // Where gradients are zeroed in place, the Reducer divides by 3 instead of multiplying by its inverse.
  const double tolerance = group.world_size() == 3 || group.world_size() == 12 ? 1e-12 : 0;
  for (int step = 0; step < 8; ++step) {
    pair.optimizer.zero_grad(step % 3 != 2);
    pair.of_plain->zero_grad(step % 3 != 2);
    pair.backward(step);
    pair.compare_gradients(fmt::format("step {}", step), tolerance);
    pair.optimizer.step();
    pair.of_plain->step();
    pair.compare_parameters(fmt::format("step {}", step), tolerance);
  }
  return "went through";
}

auto run(int world, const Case& what) { return spawn({.nprocs = world}, same_numbers, ShmGroup(world), what); }

}  // namespace

TEST_CASE("sharded gradients: numbers are those of plain DDP, bit for bit, with every optimizer") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (Kind kind : {Kind::sgd, Kind::adam, Kind::adamw, Kind::rmsprop, Kind::adagrad})
    for (std::int64_t bucket_bytes : {2000, 25 << 20}) {
      INFO("optimizer " << int(kind) << ", buckets of " << bucket_bytes);
      for (auto& said : run(2, {.kind = kind, .bucket_bytes = bucket_bytes, .progress = progress}))
        CHECK(said == "went through");
    }
}

TEST_CASE("sharded gradients: any number of ranks, more than there are parameters, too") {
  for (int world : {1, 3, 4, 12})
    for (auto& said : run(world, {.kind = Kind::adam, .bucket_bytes = 2000})) CHECK(said == "went through");
}

TEST_CASE("sharded gradients: parameters may be unused, gradients sparse") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (std::int64_t bucket_bytes : {2000, 25 << 20}) {
    Case what{.bucket_bytes = bucket_bytes, .progress = progress};
    for (auto option : {&Case::find_unused, &Case::sparse}) {
      Case one = what;
      one.*option = true;
      INFO("find_unused " << one.find_unused << ", sparse " << one.sparse);
      if (one.sparse) one.kind = Kind::adagrad;
      for (auto& said : run(3, one)) CHECK(said == "went through");
    }
  }
  CHECK_THROWS_WITH(run(2, {.static_graph = true}), ContainsSubstring("leave static_graph out"));
}

namespace {

/// Gradients add up over passes that reduce and passes that do not, in any order, before they are used or zeroed.
std::string accumulated(int rank, ShmGroup group, std::int64_t bucket_bytes, bool find_unused) {
  at::set_num_threads(1);
  // Whose steps are small however large sums of gradients get: where parameters run away, so do differences of rounding.
  Pair pair(rank, group, {.kind = Kind::adamw, .bucket_bytes = bucket_bytes, .find_unused = find_unused});
  int batch = 0;
  for (const std::string passes : {"r", "nr", "rr", "rnr", "nnrr", "f"}) {
    if (passes != "f") {
      pair.optimizer.zero_grad();
      pair.of_plain->zero_grad();
    }
    for (const char pass : passes) {
      if (pass == 'n') {
        auto one = pair.ddp.no_sync();
        auto other = pair.without.no_sync();
        pair.backward(batch++);
        require(pair.net->last->bias.grad().defined(), "no gradient under no_sync");
      } else if (pass == 'r') {
        pair.backward(batch++);
      } else {  // two forward passes, then the gradients are zeroed, then one backward pass
        const at::Tensor a = pair.ddp.forward(batch_of(rank, batch), batch),
                         b = pair.without.forward(batch_of(rank, batch), batch);
        const at::Tensor c = pair.ddp.forward(batch_of(rank, batch + 1), batch),
                         d = pair.without.forward(batch_of(rank, batch + 1), batch);
        pair.optimizer.zero_grad();
        pair.of_plain->zero_grad();
        (loss_of(a) + loss_of(c)).backward();
        (loss_of(b) + loss_of(d)).backward();
        batch += 2;
      }
    }
    pair.compare_gradients(passes, 1e-12);
    pair.optimizer.step();
    pair.of_plain->step();
    pair.compare_parameters(passes, 1e-12);
  }
  return "went through";
}

/// Whatever norm: that of all gradients, on every rank.
std::string clipped(int rank, ShmGroup group) {
  at::set_num_threads(1);
  Pair pair(rank, group, {});
  int step = 0;
  for (double type : {2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()})
    for (double most : {1e-3, 1e3}) {
      pair.optimizer.zero_grad();
      pair.of_plain->zero_grad();
      pair.backward(step++);
      const double norm = pair.optimizer.clip_grad_norm_(most, type);
      const double wanted = torch::nn::utils::clip_grad_norm_(pair.plain->parameters(), most, type);
      require(std::abs(norm - wanted) <= 1e-9 * wanted, fmt::format("norm {}: {} instead of {}", type, norm, wanted));
      pair.compare_gradients(fmt::format("clipped by norm {} to {}", type, most), 1e-9);
      pair.optimizer.step();
      pair.of_plain->step();
      pair.compare_parameters("clipped", 1e-9);
    }
  try {
    pair.optimizer.clip_grad_norm_(-1);
  } catch (const std::invalid_argument&) {
    return "went through";
  }
  return "a negative norm was taken";
}

/// After an exception in all ranks' backward pass, whatever is done to the gradients that there are.
std::string after_an_exception(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  Pair pair(rank, group, {.bucket_bytes = 2000, .progress = progress});
  for (int step = 0; step < 6; ++step) {
    if (step % 2 == 1) {
      try {
        loss_of(pair.ddp.forward(batch_of(rank, 90 + step), step, true)).backward();
        return "nothing came out of backward()";
      } catch (const std::runtime_error&) {
      }
      for (const at::Tensor& parameter : pair.net->parameters())  // memory that is there
        if (parameter.grad().defined()) (void)parameter.grad().sum().item<double>();
      if (step == 3) pair.optimizer.zero_grad(false);
    }
    // Nothing is left of it where gradients are zeroed after the next forward pass.
    const at::Tensor one = pair.ddp.forward(batch_of(rank, step), step);
    pair.optimizer.zero_grad();
    pair.of_plain->zero_grad();
    loss_of(one).backward();
    loss_of(pair.without.forward(batch_of(rank, step), step)).backward();
    pair.compare_gradients(fmt::format("step {}", step), 0);
    pair.optimizer.step();
    pair.of_plain->step();
  }
  return "went through";
}

/// Ranks with fewer batches: their owners' steps go on.
std::string joined(int rank, ShmGroup group, bool find_unused) {
  at::set_num_threads(1);
  Pair pair(rank, group, {.kind = Kind::adam, .bucket_bytes = 2000, .find_unused = find_unused});
  ZeroRedundancyOptimizer of_plain(pair.plain->parameters(), maker(Kind::adam), pair.process_group);
  const auto train = [&](Ddp& ddp, ZeroRedundancyOptimizer& optimizer) {
    Join join({ddp.joinable(), optimizer});
    for (int step = 0; step < 2 + 2 * rank; ++step) {
      optimizer.zero_grad();
      loss_of(ddp.forward(batch_of(rank, step), step)).backward();
      optimizer.step();
    }
    join.finish();
  };
  train(pair.ddp, pair.optimizer);
  train(pair.without, of_plain);
  pair.compare_parameters("the end", 1e-12);
  return "went through";
}

}  // namespace

TEST_CASE("sharded gradients: they add up over passes, as without") {
  for (std::int64_t bucket_bytes : {2000, 25 << 20})
    for (auto& said : spawn({.nprocs = 3}, accumulated, ShmGroup(3), bucket_bytes, false))
      CHECK(said == "went through");
}

TEST_CASE("sharded gradients: they add up over passes that do not use the same parameters") {
  for (std::int64_t bucket_bytes : {500, 25 << 20})
    for (auto& said : spawn({.nprocs = 3}, accumulated, ShmGroup(3), bucket_bytes, true)) CHECK(said == "went through");
}

namespace {

/// Forward passes under a no_sync() that has ended when the backward pass comes, and the other way round.
std::string forward_elsewhere(int rank, ShmGroup group, Progress progress) {
  at::set_num_threads(1);
  Pair pair(rank, group, {.bucket_bytes = 500, .progress = progress});
  for (int step = 0; step < 4; ++step) {
    pair.optimizer.zero_grad();
    pair.of_plain->zero_grad();
    at::Tensor one = pair.ddp.forward(batch_of(rank, step), step),
               other = pair.without.forward(batch_of(rank, step), step);
    {
      auto of_one = pair.ddp.no_sync();
      auto of_other = pair.without.no_sync();
      loss_of(one).backward();  // reduces, as its forward pass said
      loss_of(other).backward();
    }
    pair.compare_gradients(fmt::format("step {}", step), 1e-12);
    pair.optimizer.step();
    pair.of_plain->step();
    pair.compare_parameters(fmt::format("step {}", step), 1e-12);
  }
  return "went through";
}

}  // namespace

TEST_CASE("sharded gradients: whether a pass reduces is the forward pass's to say") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (auto& said : spawn({.nprocs = 2}, forward_elsewhere, ShmGroup(2), progress)) CHECK(said == "went through");
}

TEST_CASE("sharded gradients: clip_grad_norm_ takes the norm of all") {
  for (auto& said : spawn({.nprocs = 3}, clipped, ShmGroup(3))) CHECK(said == "went through");
}

TEST_CASE("sharded gradients: after an exception in backward() the next step is right") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (auto& said : spawn({.nprocs = 2}, after_an_exception, ShmGroup(2), progress)) CHECK(said == "went through");
}

TEST_CASE("sharded gradients: in a Join ranks without a batch step on what they own") {
  for (bool find_unused : {false, true})
    for (auto& said : spawn({.nprocs = 3}, joined, ShmGroup(3), find_unused)) CHECK(said == "went through");
}

namespace {

/// Of this process's memory in the heap: the most in a backward pass, and what is left after it.
struct Bytes {
  std::uint64_t most = 0, after = 0, gradients = 0;
};

std::uint64_t own_heap_bytes() {
  for (const auto& process : heap_statistics().processes)
    if (process.pid == ::getpid()) return process.bytes;
  throw std::runtime_error("this process is not in the table");
}

Bytes memory(int rank, ShmGroup group, bool shards) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = Progress::in_call});
  torch::nn::Sequential net;
  for (int layer = 0; layer < 16; ++layer) net->push_back(torch::nn::Linear(256, 256));  // 256 KiB each
  ZeroRedundancyOptimizer optimizer(net->parameters(),
                                    optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(0.1)), process_group);
  DistributedDataParallel<torch::nn::Sequential> ddp({.bucket_bytes = 1 << 18, .first_bucket_bytes = 1 << 18}, net,
                                                     process_group);
  if (shards) ddp.shard_gradients(optimizer.owners());
  const std::uint64_t before = own_heap_bytes();
  Bytes bytes;
  bool last_pass = false;
  for (const at::Tensor& parameter : net->parameters())
    parameter.register_hook([&](const at::Tensor&) {
      if (last_pass) bytes.most = std::max(bytes.most, own_heap_bytes());
    });
  for (int step = 0; step < 4; ++step) {
    last_pass = step == 3;
    optimizer.zero_grad();
    ddp.forward(torch::ones({2, 256})).sum().backward();
    if (!last_pass) optimizer.step();
  }
  bytes.after = own_heap_bytes();
  for (const at::Tensor& parameter : net->parameters())
    if (parameter.grad().defined()) bytes.gradients += parameter.grad().nbytes();
  const std::uint64_t buckets = shards ? 0 : 16 * (256 * 256 + 256) * 4;
  require(before >= buckets, "plain DDP's buckets are in the heap from the beginning");
  bytes.most -= before - buckets;
  bytes.after -= before - buckets;
  return bytes;
}

std::string refused(int rank, ShmGroup group, int what) {
  auto process_group = init_process_group(group, rank);
  Net net;
  Ddp ddp({.find_unused_parameters = what == 7,
           .gradient_as_bucket_view = what != 0,
           .skip_all_reduce_unused_params = what == 7},
          net, process_group);
  ZeroRedundancyOptimizer optimizer(net->parameters(), maker(Kind::sgd), process_group);
  GradientOwners owners = optimizer.owners();
  if (what == 1) owners.pop_back();
  if (what == 2) owners[0].second = 2;
  if (what == 3 && rank == 1) owners[0].second = 1 - owners[0].second;
  if (what == 4) ddp.register_comm_hook(all_reduce_hook(process_group));
  if (what == 5) ddp.forward(batch_of(rank, 0), 0);
  if (what == 6) ddp.shard_gradients(owners);
  try {
    ddp.shard_gradients(owners);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("sharded gradients: a rank's gradients are its part, and buckets are there while they are needed") {
  constexpr std::uint64_t kAll = std::uint64_t(16) * (256 * 256 + 256) * 4, kBucket = kAll / 16;
  for (const Bytes& plain : spawn({.nprocs = 4}, memory, ShmGroup(4), false)) {
    CHECK(plain.gradients == kAll);
    CHECK(plain.most >= kAll);
  }
  for (const Bytes& sharded : spawn({.nprocs = 4}, memory, ShmGroup(4), true)) {
    CHECK(sharded.gradients == kAll / 4);
    CHECK(sharded.most <= 4 * kBucket);
    CHECK(sharded.after <= 3 * kBucket);
  }
}

TEST_CASE("sharded gradients: what does not go is refused, by name and on all ranks") {
  const char* const words[] = {"needs DistributedDataParallelOptions::gradient_as_bucket_view",
                               "last.bias has no owner",
                               "rank 2 as the owner of turned: there are 2 ranks",
                               "rank 1 has given other owners than rank 0",
                               "there is a communication hook",
                               "shard_gradients after the first forward()",
                               "sharded already",
                               "skip_all_reduce_unused_params"};
  for (int what = 0; what < 8; ++what)
    for (auto& said : spawn({.nprocs = 2}, refused, ShmGroup(2), what))
      CHECK_THAT(said, ContainsSubstring(words[what]));
}

}  // namespace sharded_gradients_test
