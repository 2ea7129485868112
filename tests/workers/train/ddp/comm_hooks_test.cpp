// DDP's communication hooks.
#include <shoal/workers/train/comm_hooks.h>

#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/tensor_collectives.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace comm_hooks_test {

namespace {

torch::nn::Sequential make_net(int seed) {
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(6, 40), torch::nn::Tanh(), torch::nn::Linear(40, 30), torch::nn::Tanh(),
                            torch::nn::Linear(30, 3));
  net->to(at::kDouble);
  return net;
}

enum class Which { all_reduce, fp16, bf16, power_sgd, compressed_power_sgd, top_k, local_sgd };

CommHook make_hook(Which which, const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  switch (which) {
    case Which::all_reduce:
      return all_reduce_hook(process_group);
    case Which::fp16:
      return fp16_compress_hook(process_group);
    case Which::bf16:
      return bf16_compress_hook(process_group);
    case Which::power_sgd:
      return power_sgd_hook(process_group, {.rank = 2, .start_step = 2});
    case Which::compressed_power_sgd:
      return compressed(power_sgd_hook(process_group, {.rank = 2, .start_step = 2}), at::kFloat);
    case Which::top_k:
      return top_k_hook(process_group, {.fraction = 0.1, .start_step = 2});
    case Which::local_sgd:
      return local_sgd_hook(process_group, {.start_step = 2});
  }
  throw std::invalid_argument("which?");
}

using Net = DistributedDataParallel<torch::nn::Sequential>;
DistributedDataParallelOptions small_buckets() { return {.bucket_bytes = 3000, .first_bucket_bytes = 1000}; }

DistributedDataParallelOptions static_graph() {
  DistributedDataParallelOptions options = small_buckets();
  options.static_graph = true;
  return options;
}

/// The gradients of `steps` steps, whose parameters stay as they are: how far the last, and the mean of all, are from
/// those without a hook, as a part of their length; and the last, flat.
std::tuple<double, double, at::Tensor> gradients(int rank, ShmGroup group, Which which, int steps, Progress progress,
                                                 bool is_static) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::nn::Sequential net = make_net(rank), plain = make_net(0);
  Net ddp(is_static ? static_graph() : small_buckets(), net, process_group);
  Net without(small_buckets(), plain, process_group);
  ddp.register_comm_hook(make_hook(which, process_group));
  at::Tensor got, wanted, sum;
  const auto flat = [](const torch::nn::Sequential& of) {
    std::vector<at::Tensor> parts;
    for (auto& parameter : of->parameters()) parts.push_back(parameter.grad().flatten());
    return torch::cat(parts).clone();
  };
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    plain->zero_grad();
    loss_of(ddp(batch_of(rank, 0))).backward();
    loss_of(without(batch_of(rank, 0))).backward();
    got = flat(net);
    wanted = flat(plain);
    sum = step == 0 ? got : sum + got;
    if (step < 2) require_close(got, wanted, fmt::format("step {}, in which no hook leaves out much", step), 1e-2);
  }
  const auto apart = [&](const at::Tensor& one) { return ((one - wanted).norm() / wanted.norm()).item<double>(); };
  return {apart(got), apart(sum / steps), got};
}

auto run(Which which, int steps, Progress progress, int world, bool is_static) {
  return spawn({.nprocs = world}, gradients, ShmGroup(world), which, steps, progress, is_static);
}

/// How near the mean gradient, and the mean over many steps, are to the exact ones.
void check(Which which, int steps, double last, double mean, bool is_static = false) {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  const auto ranks = run(which, steps, progress, 3, is_static);
  for (const auto& [off, mean_off, flat] : ranks) {
    CHECK(off <= last);
    CHECK(mean_off <= mean);
    CHECK(torch::equal(flat, std::get<2>(ranks[0])));
  }
}

}  // namespace

TEST_CASE("comm hooks: all_reduce_hook gives the gradients that there are without a hook") {
  check(Which::all_reduce, 4, 1e-15, 1e-15);
}

TEST_CASE("comm hooks: gradients in half types come near the exact ones, and are equal on all ranks") {
  check(Which::fp16, 4, 2e-3, 2e-3);
  check(Which::bf16, 4, 2e-2, 2e-2);
}

TEST_CASE("comm hooks: PowerSGD's error comes back, so that over many steps nothing is lost") {
  check(Which::power_sgd, 60, 3.0, 0.1);
  check(Which::compressed_power_sgd, 60, 3.0, 0.1);
}

TEST_CASE("comm hooks: what top-k leaves out is sent later") { check(Which::top_k, 100, 6.0, 0.2); }

TEST_CASE("comm hooks: those of a static graph begin to leave something out at their step, in any number of buckets") {
  check(Which::bf16, 4, 2e-2, 2e-2, true);
  check(Which::power_sgd, 60, 3.0, 0.1, true);
  check(Which::top_k, 100, 6.0, 0.2, true);
}

namespace {

/// Whether the ranks' parameters are equal after each step.
std::vector<bool> local_steps(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(0);
  Net ddp(net, process_group);
  ddp.register_comm_hook(local_sgd_hook(process_group, {.start_step = 2}));
  PeriodicAverager averager(process_group, {.period = 3, .warm_up = 2});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  std::vector<bool> equal;
  for (int step = 0; step < 9; ++step) {
    optimizer.zero_grad();
    loss_of(ddp(batch_of(rank, step))).backward();
    optimizer.step();
    const at::Tensor before = net->parameters()[0].detach().clone();
    const bool averaged = averager.average(net->parameters());
    std::vector<at::Tensor> sum{before.clone()};
    process_group->allreduce(sum)->wait();
    if (averaged) require_close(net->parameters()[0].detach(), sum[0] / 3, "the average", 1e-12);
    std::vector<at::Tensor> low{net->parameters()[0].detach().clone()}, high{low[0].clone()};
    process_group->allreduce(low, {.reduceOp = c10d::ReduceOp::MIN})->wait();
    process_group->allreduce(high, {.reduceOp = c10d::ReduceOp::MAX})->wait();
    equal.push_back(torch::equal(low[0], high[0]));
  }
  return equal;
}

}  // namespace

TEST_CASE("comm hooks: local SGD steps alone between the averages of the parameters") {
  for (auto& equal : spawn({.nprocs = 3}, local_steps, ShmGroup(3)))
    CHECK(equal == std::vector<bool>{true, true, true, false, false, true, false, false, true});
}

namespace {

/// Frozen parameters of values whose thirds do not add up to them, a table of integers, and one that is trained.
std::string average_frozen(int rank, const ShmGroup& group, bool differs) {
  auto process_group = init_process_group(group, rank);
  PeriodicAverager averager(process_group, {.period = 1, .warm_up = 0});
  torch::manual_seed(0);
  const at::Tensor frozen = torch::randn({1000}), numbers = torch::arange(10), trained = torch::full({4}, double(rank));
  trained.set_requires_grad(true);
  frozen.set_requires_grad(differs && rank == 1);
  const at::Tensor before = frozen.detach().clone();
  for (int step = 0; step < 10; ++step) try {
      require(averager.average({frozen, numbers, trained}), "no average");
    } catch (const std::invalid_argument& error) {
      process_group->barrier()->wait();
      return error.what();
    }
  require(torch::equal(frozen, before), "frozen parameters have changed");
  require(torch::equal(numbers, torch::arange(10)), "integers have changed");
  require_close(trained.detach(), torch::ones({4}), "the mean", 1e-6);
  return "went through";
}

}  // namespace

TEST_CASE("comm hooks: PeriodicAverager leaves what is not trained, bit for bit, and tells ranks that differ in it") {
  for (auto& said : spawn({.nprocs = 3}, average_frozen, ShmGroup(3), false)) CHECK(said == "went through");
  for (auto& said : spawn({.nprocs = 3}, average_frozen, ShmGroup(3), true))
    CHECK_THAT(said, ContainsSubstring("rank 1 differs from that of rank 0: parameter 0 (Float [1000], strides [1]) "
                                       "instead of parameter 2 (Float [4], strides [1])"));
}

namespace {

/// What a hook of the user's is given, and what it can do.
std::string own_hook(int rank, ShmGroup group, bool is_static) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(0);
  Net ddp(is_static ? static_graph() : small_buckets(), net, process_group);
  ddp.set_comm_hook_step(40);  // of a training before
  std::size_t buckets = 0, elements = 0;
  std::int64_t step_now = 0;
  bool last = true;
  const auto fails = std::make_shared<bool>(false);
  ddp.register_comm_hook([&, fails](GradBucket& bucket) {
    if (bucket.index() == 0) {
      require(last, "the last step's buckets did not come to their end");
      buckets = elements = 0;
    }
    require(bucket.index() == buckets++, "buckets come out of order");
    last = bucket.is_last();
    step_now = bucket.step();
    const auto gradients = bucket.gradients();
    const auto parameters = bucket.parameters();
    require(gradients.size() == parameters.size(), "as many gradients as parameters");
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      require(gradients[i].sizes() == parameters[i].sizes(), "a gradient in its parameter's shape");
      require(gradients[i].is_alias_of(bucket.buffer()), "a view of the buffer");
      elements += std::size_t(gradients[i].numel());
    }
    require(bucket.divisor() == 2, "two ranks");
    if (*fails && bucket.index() == 1) throw std::runtime_error("the hook's own fault");
    return hook_result(torch::full_like(bucket.buffer(), 7));  // none of the user's buffers
  });
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    loss_of(ddp(batch_of(rank, step))).backward();
    require(last && buckets >= 2, "several buckets");
    require(step_now == 41 + step && ddp.comm_hook_step() == step_now, "the number of the step");
    std::size_t all = 0;
    for (auto& parameter : net->parameters()) {
      all += std::size_t(parameter.numel());
      require((parameter.grad() == 7).all().item<bool>(), "the hook's result is not the gradient");
    }
    require(all == elements, "all gradients");
  }
  try {
    ddp.register_comm_hook(all_reduce_hook(process_group));
    return "a second hook was taken";
  } catch (const std::invalid_argument&) {
  }
  *fails = true;
  try {
    loss_of(ddp(batch_of(rank, 3))).backward();
    return "nothing came out of backward()";
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()).find("the hook's own fault") == std::string::npos) return error.what();
  }
  // All ranks' hooks have failed, so all start anew, with the hook.
  *fails = false;
  last = true;
  net->zero_grad();
  loss_of(ddp(batch_of(rank, 4))).backward();
  require((net->parameters()[0].grad() == 7).all().item<bool>(), "the hook was lost");
  return "went through";
}

std::string late_hook(int rank, ShmGroup group) {
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(0);
  Net ddp(net, process_group);
  loss_of(ddp(batch_of(rank, 0))).backward();
  try {
    ddp.register_comm_hook(all_reduce_hook(process_group));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("comm hooks: a hook of one's own gets all gradients in buckets, and gives them any values") {
  for (bool is_static : {false, true})
    for (auto& said : spawn({.nprocs = 2}, own_hook, ShmGroup(2), is_static)) CHECK(said == "went through");
  CHECK_THAT(spawn({.nprocs = 1}, late_hook, ShmGroup(1))[0], ContainsSubstring("after the first forward()"));
  CHECK_THROWS_AS(top_k_hook(nullptr, {.fraction = 0}), std::invalid_argument);
  CHECK_THROWS_AS(power_sgd_hook(nullptr, {.rank = 0}), std::invalid_argument);
}

namespace {

/// Two layers, of which the last one is never used: its buckets come first, and are skipped.
struct HalfUsedImpl : torch::nn::Module {
  HalfUsedImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return used(x); }
  torch::nn::Linear first_unused{register_module("first_unused", torch::nn::Linear(2, 2))};
  torch::nn::Linear used{register_module("used", torch::nn::Linear(6, 5))};
  torch::nn::Linear last_unused{register_module("last_unused", torch::nn::Linear(2, 2))};
};
TORCH_MODULE(HalfUsed);

/// What backward() said, or in how many of the gradient's elements the last of three steps differs from the mean.
std::string with_skipped_buckets(int rank, ShmGroup group, bool power_sgd) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  HalfUsed net, plain;
  copy_values(*net, *plain);
  DistributedDataParallel<HalfUsed> ddp({.bucket_bytes = 1,
                                         .first_bucket_bytes = 1,
                                         .find_unused_parameters = true,
                                         .skip_all_reduce_unused_params = true},
                                        net, process_group);
  ddp.register_comm_hook(power_sgd ? power_sgd_hook(process_group, {.start_step = 2})
                                   : top_k_hook(process_group, {.fraction = 0.1, .start_step = 2}));
  try {
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      loss_of(ddp(batch_of(0, step))).backward();
    }
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  loss_of(plain(batch_of(0, 2))).backward();
  return fmt::format("{} differ",
                     (net->used->weight.grad() - plain->used->weight.grad()).abs().gt(1e-12).sum().item<int>());
}

}  // namespace

TEST_CASE("comm hooks: buckets that are skipped change no count of steps, and PowerSGD refuses them") {
  for (auto& said : spawn({.nprocs = 2}, with_skipped_buckets, ShmGroup(2), false)) CHECK(said == "27 differ");
  for (auto& said : spawn({.nprocs = 2}, with_skipped_buckets, ShmGroup(2), true))
    CHECK_THAT(said, ContainsSubstring("power_sgd_hook with skip_all_reduce_unused_params"));
}

namespace {

/// Layers that are used in another order than they have as members, with gradients of other sizes.
struct TurnedImpl : torch::nn::Module {
  TurnedImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& x) { return third(torch::tanh(first(torch::tanh(second(x))))) * 5; }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(40, 30))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(6, 40))};
  torch::nn::Linear third{register_module("third", torch::nn::Linear(30, 3))};
};
TORCH_MODULE(Turned);

/// One rank whose gradients are the same in 60 steps, and then zero until all is given: how far what top-k has given is from
/// what there was, as a part of one step's. In between a backward pass fails, and the Reducer makes its buckets anew, in
/// another order.
double given_by_top_k(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Turned net;
  DistributedDataParallel<Turned> ddp(net, process_group);  // one bucket
  ddp.register_comm_hook(top_k_hook(process_group, {.fraction = 0.02}));
  bool fails = false;
  net->parameters()[0].register_hook([&](const at::Tensor& gradient) {
    if (std::exchange(fails, false)) throw std::runtime_error("a fault");
    return gradient;
  });
  at::Tensor given, wanted;
  const auto flat = [&] {
    std::vector<at::Tensor> parts;
    for (auto& parameter : net->parameters()) parts.push_back(parameter.grad().flatten());
    return torch::cat(parts).clone();
  };
  for (int step = 0; step < 120; ++step) {
    net->zero_grad();
    if (step == 30) {
      fails = true;
      try {
        loss_of(ddp(batch_of(rank, 0))).backward();
      } catch (const std::runtime_error&) {
      }
      require(!fails, "nothing was thrown");
      net->zero_grad();
    }
    (loss_of(ddp(batch_of(rank, 0))) * (step < 60 ? 1 : 0)).backward();
    if (step == 0) wanted = flat();  // of the first step the mean
    given = step == 0 ? flat() : given + flat();
  }
  return ((given - wanted * 60).norm() / wanted.norm()).item<double>();
}

StatefulCommHook make_stateful(Which which, const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  if (which == Which::top_k) return top_k_hook(process_group, {.fraction = 0.1, .start_step = 2});
  return power_sgd_hook(process_group, {.rank = 2, .start_step = 2});
}

/// A training, which ends after half of its steps and goes on in a process group, module and hook of its own. Its
/// gradients are the same in each step, so all that it was given and what is left out at the end is what it should have
/// been given: how far it is from that, as a part of it, and the lengths of what was left out at the half and at the end.
std::tuple<double, double, double> given_in_two_halves(int rank, std::vector<ShmGroup> groups, Which which, bool cast) {
  at::set_num_threads(1);
  constexpr int kSteps = 10;
  CommHookState state;
  at::Tensor given, wanted;
  double at_half = 0;
  const auto flat = [](const std::vector<at::Tensor>& parts) {
    std::vector<at::Tensor> each;
    for (const at::Tensor& part : parts) each.push_back(part.flatten());
    return torch::cat(each).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  };
  const auto gradients_of = [](const torch::nn::Sequential& net) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
    return gradients;
  };
  for (int half = 0; half < 2; ++half) {
    auto process_group = init_process_group(groups[std::size_t(half)], rank);
    torch::nn::Sequential net = make_net(0);
    Net ddp(small_buckets(), net, process_group);
    StatefulCommHook hook = make_stateful(which, process_group);
    ddp.register_comm_hook(cast ? compressed(hook, at::kFloat) : CommHook(hook));
    if (half == 1) {
      ddp.set_comm_hook_step(kSteps);
      hook.load_state_dict(state, net->parameters());
      const CommHookState same = hook.state_dict(net->parameters());
      for (std::size_t i = 0; i < same.left_out.size(); ++i) {
        require(torch::equal(same.left_out[i], state.left_out[i]), "what was loaded is not what is saved");
        require(same.factors[i].defined() == state.factors[i].defined(), "a factor is lost");
      }
    }
    for (int step = 0; step < kSteps; ++step) {
      net->zero_grad();
      loss_of(ddp(batch_of(rank, 0))).backward();
      const at::Tensor got = flat(gradients_of(net));
      if (!given.defined()) wanted = got;  // of the first step the mean
      given = given.defined() ? given + got : got;
    }
    state = hook.state_dict(net->parameters());
    if (half == 0) at_half = flat(state.left_out).norm().item<double>();
  }
  at::Tensor left_out = flat(state.left_out);
  Communicator ranks = groups[2].join(rank);
  all_reduce(ranks, left_out);
  const at::Tensor all = given + left_out / ranks.world_size();
  return {((all - wanted * 2 * kSteps).norm() / (wanted * 2 * kSteps).norm()).item<double>(), at_half,
          left_out.norm().item<double>()};
}

}  // namespace

TEST_CASE("comm hooks: nothing of a gradient is lost where a training goes on with the hook's state") {
  const auto which = GENERATE(Which::top_k, Which::power_sgd);
  const bool cast = GENERATE(false, true);
  CAPTURE(int(which), cast);
  const std::vector<ShmGroup> groups{ShmGroup(2), ShmGroup(2), ShmGroup(2)};
  for (const auto& [lost, at_half, at_end] : spawn({.nprocs = 2}, given_in_two_halves, groups, which, cast)) {
    CHECK(lost < (cast ? 1e-5 : 1e-12));
    CHECK(at_half > 1e-3);
    CHECK(at_end > 1e-3);
  }
}

namespace {

at::Tensor flat_gradients(const torch::nn::Sequential& net) {
  std::vector<at::Tensor> each;
  for (const at::Tensor& parameter : net->parameters()) each.push_back(parameter.grad().flatten());
  return torch::cat(each).clone();
}

/// Ten steps of a training that goes on where another number of ranks may have saved it: the sum of its gradients, and
/// that of what the rank has left out at the end.
std::pair<at::Tensor, at::Tensor> given_from_a_checkpoint(int rank, ShmGroup group, Which which, std::string folder) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(0);
  Net ddp(small_buckets(), net, process_group);
  StatefulCommHook hook = make_stateful(which, process_group);
  ddp.register_comm_hook(hook);
  Checkpoints checkpoints({.folder = folder}, process_group);
  CheckpointParts parts;
  parts.add("hook", hook, *net);
  parts.add(
      "hook_step", [&] { return ddp.comm_hook_step(); }, [&](std::int64_t step) { ddp.set_comm_hook_step(step); });
  checkpoints.load(parts);
  at::Tensor given;
  for (int step = 0; step < 10; ++step) {
    net->zero_grad();
    loss_of(ddp(batch_of(rank, 0))).backward();
    given = given.defined() ? given + flat_gradients(net) : flat_gradients(net);
  }
  checkpoints.save(ddp.comm_hook_step(), parts);
  std::vector<at::Tensor> left_out;
  for (const at::Tensor& part : hook.state_dict(net->parameters()).left_out) left_out.push_back(part);
  return {given, torch::cat(left_out)};
}

}  // namespace

TEST_CASE("comm hooks: nothing of a gradient is lost or comes twice where other numbers of ranks go on") {
  const auto which = GENERATE(Which::top_k, Which::power_sgd);
  const std::vector<int> ranks = GENERATE(std::vector{2, 1}, std::vector{1, 3}, std::vector{3, 2, 3});
  CAPTURE(int(which), ranks);
  std::vector<at::Tensor> gradients;  // of each rank's batch
  for (int rank = 0; rank < 3; ++rank) {
    torch::nn::Sequential net = make_net(0);
    loss_of(net->forward(batch_of(rank, 0))).backward();
    gradients.push_back(flat_gradients(net));
  }
  const TemporaryFolder folder;
  at::Tensor given = at::zeros_like(gradients[0]), wanted = at::zeros_like(gradients[0]), left_out;
  for (const int count : ranks) {
    left_out = at::zeros_like(gradients[0]);
    const auto results = spawn({.nprocs = count}, given_from_a_checkpoint, ShmGroup(count), which, folder.path());
    given += results[0].first;
    for (std::size_t rank = 0; rank < std::size_t(count); ++rank) {
      left_out += results[rank].second / count;
      wanted += gradients[rank] * 10 / count;
    }
  }
  CHECK(((given + left_out - wanted).norm() / wanted.norm()).item<double>() < 1e-12);
  CHECK(left_out.norm().item<double>() > 1e-3);
}

TEST_CASE("comm hooks: a state that does not fit the parameters is refused, and changes nothing") {
  StatefulCommHook hook = top_k_hook(nullptr);
  const std::vector<at::Tensor> parameters{torch::zeros({4, 3}), torch::zeros({4})};
  const CommHookState state{.left_out = {torch::ones({12}), {}}, .factors = {torch::ones({3, 1}), {}}};
  hook.load_state_dict(state, parameters);
  const auto refuses = [&](const CommHookState& other, const std::string& why) {
    CHECK_THROWS_WITH(hook.load_state_dict(other, parameters), ContainsSubstring(why));
  };
  refuses({.left_out = {{}}, .factors = {{}}}, "state of 1 parameters, for a module of 2");
  refuses({.left_out = {{}, torch::ones({5})}, .factors = {{}, {}}}, "left out of parameter 1, [4], is Float [5]");
  refuses({.left_out = {torch::ones({12}, at::kLong), {}}, .factors = {{}, {}}}, "parameter 0, [4, 3], is Long [12]");
  refuses({.left_out = {{}, {}}, .factors = {torch::ones({4, 1}), {}}}, "the factor of parameter 0");
  refuses({.left_out = {{}, {}}, .factors = {{}, torch::ones({1, 1})}}, "the factor of parameter 1");
  CHECK(torch::equal(hook.state_dict(parameters).left_out[0], torch::ones({12})));
}

TEST_CASE("comm hooks: what was left out goes to its own parameter when buckets are made anew") {
  CHECK(spawn({.nprocs = 1}, given_by_top_k, ShmGroup(1))[0] < 1e-9);
}

}  // namespace comm_hooks_test
