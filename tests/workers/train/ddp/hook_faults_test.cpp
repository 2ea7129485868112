// Communication hooks where something goes wrong: failed collectives and passes, refused memory, gradients that are zero, of
// low rank or not finite, parameters that a hook cannot reduce.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>
#include <torch/torch.h>

#include <cstdlib>
#include <deque>
#include <limits>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"
#include "tests/workers/train/ddp/made_bucket.h"

using namespace shoal;
using namespace shoal::test;

namespace hook_faults_test {

namespace {

class HeldWork final : public c10d::Work {
 public:
  void end(std::exception_ptr failure = nullptr) {
    finish(failure);
    if (failure)
      future_->setError(failure);
    else
      future_->markCompleted(c10::IValue(std::vector<at::Tensor>{}));
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
};

std::exception_ptr lost() { return std::make_exception_ptr(std::runtime_error("a collective was lost")); }

/// A group of one rank, whose collectives end when the test says so: at once, unless they are held.
class HeldGroup final : public c10d::ProcessGroup {
 public:
  HeldGroup() : ProcessGroup(0, 1) {}
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return begin();
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs, const c10d::AllgatherOptions&) override {
    outputs[0][0].copy_(inputs[0]);
    return begin();
  }

  bool holds = false;
  int fails_at = -1;  // the number of the collective that is lost
  std::vector<c10::intrusive_ptr<HeldWork>> works;

 private:
  c10::intrusive_ptr<c10d::Work> begin() {
    works.push_back(c10::make_intrusive<HeldWork>());
    if (!holds) works.back()->end(int(works.size()) == fails_at ? lost() : nullptr);
    return works.back();
  }
};

/// Two buckets of one matrix each, in one step after the other.
struct TwoBuckets {
  explicit TwoBuckets(std::vector<at::Tensor> of) : parameters(std::move(of)) {}

  /// A pass with these gradients: the buffers, in which the results come to lie.
  std::vector<at::Tensor> pass(const StatefulCommHook& hook, const std::vector<at::Tensor>& gradients) {
    ++step;
    buckets.clear();
    results.clear();
    std::vector<at::Tensor> buffers;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      MadeBucket& bucket = buckets.emplace_back(GradBucket::Place{.index = i, .step = step}, parameters.size(),
                                                std::vector<at::Tensor>{parameters[i]});
      bucket.buffer().copy_(gradients[i].reshape({-1}));
      buffers.push_back(bucket.buffer());
    }
    for (MadeBucket& bucket : buckets) results.push_back(hook(*bucket));
    return buffers;
  }
  std::vector<at::Tensor> left_out(const StatefulCommHook& hook) const {
    std::vector<at::Tensor> parts = hook.state_dict(parameters).left_out;
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (!parts[i].defined()) parts[i] = at::zeros({parameters[i].numel()}, parameters[i].options());
    return parts;
  }

  std::vector<at::Tensor> parameters;
  std::int64_t step = 1;
  std::deque<MadeBucket> buckets;
  std::vector<HookResult> results;
};

bool all_equal(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  for (std::size_t i = 0; i < some.size(); ++i)
    if (!at::equal(some[i], others[i])) return false;
  return some.size() == others.size();
}

double apart(const at::Tensor& got, const at::Tensor& wanted) {
  return ((got.reshape({-1}) - wanted.reshape({-1})).norm() / wanted.norm()).item<double>();
}

std::vector<at::Tensor> two_matrices() { return {at::zeros({12, 10}, at::kDouble), at::zeros({9, 11}, at::kDouble)}; }
std::vector<at::Tensor> two_gradients() {
  torch::manual_seed(7);
  return {at::randn({12, 10}, at::kDouble), at::randn({9, 11}, at::kDouble)};
}

}  // namespace

TEST_CASE(
    "comm hooks: what top-k leaves out changes when all gathers of the pass have succeeded, not when they begin") {
  const int failed = GENERATE(-1, 0, 1, 2, 3);
  CAPTURE(failed);
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model(two_matrices());
  const StatefulCommHook hook = top_k_hook(group, {.fraction = 0.1});
  model.pass(hook, two_gradients());
  const std::vector<at::Tensor> before = model.left_out(hook);
  CHECK(before[0].norm().item<double>() > 1);
  group->works.clear();
  group->holds = true;
  model.pass(hook, two_gradients());
  REQUIRE(group->works.size() == 4);
  for (int i = 3; i >= 0; --i) {  // the last one first: their order is the backend's own business
    CHECK(all_equal(model.left_out(hook), before));
    group->works[std::size_t(i)]->end(i == failed ? lost() : nullptr);
  }
  CHECK(all_equal(model.left_out(hook), before) == (failed >= 0));
}

TEST_CASE("comm hooks: a bucket of top-k is done when both of its gathers are") {
  const bool values_first = GENERATE(true, false);
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model({two_matrices()[0]});
  const StatefulCommHook hook = top_k_hook(group, {.fraction = 0.1});
  group->holds = true;
  model.pass(hook, {two_gradients()[0]});
  REQUIRE(group->works.size() == 2);
  group->works[values_first ? 1 : 0]->end();
  CHECK_FALSE(model.results[0]->completed());
  group->works[values_first ? 0 : 1]->end();
  REQUIRE(model.results[0]->completed());
  CHECK(model.buckets[0].buffer().count_nonzero().item<int>() == 12);
}

TEST_CASE("comm hooks: a bucket of top-k of which a gather is lost has failed") {
  const std::size_t failed = GENERATE(std::size_t(0), std::size_t(1));
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model({two_matrices()[0]});
  const StatefulCommHook hook = top_k_hook(group, {.fraction = 0.1});
  group->holds = true;
  model.pass(hook, {two_gradients()[0]});
  for (std::size_t i = 0; i < 2; ++i) group->works[i]->end(i == failed ? lost() : nullptr);
  REQUIRE(model.results[0]->completed());
  CHECK(model.results[0]->hasError());
}

TEST_CASE(
    "comm hooks: a collective of PowerSGD's that is lost changes no bucket's result, and nothing that is left out") {
  // Of two buckets: P of the first, P of the second, Q of the first, Q of the second.
  const int failed = GENERATE(1, 2, 3, 4);
  CAPTURE(failed);
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model(two_matrices());
  const StatefulCommHook hook = power_sgd_hook(group);
  model.step = 1000;
  model.pass(hook, two_gradients());
  const CommHookState before = hook.state_dict(model.parameters);
  group->works.clear();
  group->fails_at = failed;
  CHECK_THROWS_WITH(model.pass(hook, two_gradients()), ContainsSubstring("was lost"));
  const CommHookState after = hook.state_dict(model.parameters);
  CHECK(all_equal(after.left_out, before.left_out));
  CHECK(all_equal(after.factors, before.factors));
  // What was to be sent is still in the buffers.
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(apart(model.buckets[i].buffer(), two_gradients()[i].reshape({-1}) + before.left_out[i]) < 1e-12);
  // And the training goes on as if the step had not been.
  group->fails_at = -1;
  const auto sent = model.pass(hook, two_gradients());
  const auto left_out = model.left_out(hook);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(apart(sent[i] + left_out[i], two_gradients()[i].reshape({-1}) + before.left_out[i]) < 1e-12);
}

TEST_CASE("comm hooks: PowerSGD goes on after memory for a bucket was refused") {
  const auto group = c10::make_intrusive<HeldGroup>();
  // A vector goes as it is, by the buffer in the heap.
  TwoBuckets model({at::zeros({6'000'000}), at::zeros({12, 10})});
  const StatefulCommHook hook = power_sgd_hook(group, {.start_step = 1, .error_feedback = false});
  const std::vector<at::Tensor> gradients{at::ones({6'000'000}), at::ones({12, 10})};
  const char* const limit = std::getenv("SHOAL_MEMORY_LIMIT");
  const std::string before = limit ? limit : "";
  ::setenv("SHOAL_MEMORY_LIMIT", "16M", 1);
  CHECK_THROWS_AS(model.pass(hook, gradients), OutOfSharedMemory);
  limit ? ::setenv("SHOAL_MEMORY_LIMIT", before.c_str(), 1) : ::unsetenv("SHOAL_MEMORY_LIMIT");
  const auto sent = model.pass(hook, gradients);
  CHECK(at::equal(sent[0], at::ones({6'000'000})));
  CHECK(apart(sent[1], gradients[1]) < 1e-5);
}

TEST_CASE("comm hooks: a step whose gradients are not finite leaves nothing of it in a hook") {
  const bool error_feedback = GENERATE(true, false), low_rank = GENERATE(true, false);
  const double bad = GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  CAPTURE(error_feedback, low_rank, bad);
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model(two_matrices());
  const StatefulCommHook hook =
      low_rank ? power_sgd_hook(group, {.rank = 2, .start_step = 1, .error_feedback = error_feedback})
               : top_k_hook(group, {.fraction = 0.1, .error_feedback = error_feedback});
  model.pass(hook, two_gradients());
  const auto before = model.left_out(hook);
  auto gradients = two_gradients();
  gradients[1][3][4] = bad;
  const auto spoilt = model.pass(hook, gradients);
  CHECK_FALSE(spoilt[1].isfinite().all().item<bool>());
  CHECK(all_equal(model.left_out(hook), before));
  const auto sent = model.pass(hook, two_gradients());
  const auto left_out = model.left_out(hook);
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(sent[i].isfinite().all().item<bool>());
    CHECK(sent[i].norm().item<double>() > 0.1);
    if (error_feedback) CHECK(apart(sent[i] + left_out[i], two_gradients()[i].reshape({-1}) + before[i]) < 1e-12);
  }
}

namespace {

struct LookUpImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& indices) { return net(table(indices)); }
  torch::nn::Embedding table{
      register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 12).sparse(true)))};
  torch::nn::Linear net{register_module("net", torch::nn::Linear(12, 10))};
};
TORCH_MODULE(LookUp);

/// In the fourth step the gradient of the table is infinite on rank 1, that of the layer on none.
std::string spoil_sparse(int rank, ShmGroup group, bool low_rank) {
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  LookUp net;
  DistributedDataParallel<LookUp> ddp(net, process_group);
  const StatefulCommHook hook =
      low_rank ? power_sgd_hook(process_group, {.start_step = 1}) : top_k_hook(process_group, {.fraction = 0.1});
  ddp.register_comm_hook(hook);
  bool spoils = false;
  net->table->weight.register_hook([&](const at::Tensor& gradient) {
    return spoils ? gradient * std::numeric_limits<double>::infinity() : gradient;
  });
  const auto left_out = [&] { return hook.state_dict(net->parameters()).left_out[1].clone(); };
  std::vector<at::Tensor> after;
  for (int step = 0; step < 5; ++step) {
    spoils = rank == 1 && step == 3;
    net->zero_grad();
    ddp.forward(torch::tensor({step, rank, 8})).pow(2).sum().backward();
    if (step > 1) after.push_back(left_out());
    require(net->table->weight.grad().coalesce().values().isfinite().all().item<bool>() == (step != 3), "the mean");
  }
  require(at::equal(after[0], after[1]), "the spoilt step has changed what is left out");
  require(!at::equal(after[1], after[2]), "the step after it has not");
  return "went through";
}

}  // namespace

TEST_CASE("comm hooks: a step whose sparse gradients alone are not finite leaves nothing of it in a hook") {
  for (const bool low_rank : {false, true})
    for (const std::string& said : spawn({.nprocs = 2}, spoil_sparse, ShmGroup(2), low_rank))
      CHECK(said == "went through");
}

TEST_CASE("comm hooks: a factor that was loaded and is not finite begins anew") {
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model({at::zeros({12, 10}, at::kDouble)});
  StatefulCommHook hook = power_sgd_hook(group, {.rank = 1, .start_step = 1});
  const at::Tensor factor = at::full({10, 1}, std::numeric_limits<double>::infinity(), at::kDouble);
  hook.load_state_dict({.left_out = {at::Tensor()}, .factors = {factor}}, model.parameters);
  const at::Tensor gradient = two_gradients()[0].narrow(1, 0, 1).expand({12, 10});  // of rank 1
  CHECK(apart(model.pass(hook, {gradient})[0], gradient) < 1e-9);
}

TEST_CASE("comm hooks: PowerSGD's columns that are longer than a half number can be are not lost") {
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model({at::zeros({10'000, 8}, at::kHalf)});
  const StatefulCommHook hook = power_sgd_hook(group, {.start_step = 1});
  const at::Tensor gradient = at::full({10'000, 8}, 300, at::kHalf);
  for (int pass = 0; pass < 2; ++pass)  // P is 85,000 long as soon as Q has the gradient's direction
    CHECK(apart(model.pass(hook, {gradient})[0].to(at::kDouble), gradient.to(at::kDouble)) < 1e-2);
}

TEST_CASE("comm hooks: PowerSGD finds a gradient again after one that was zero") {
  const bool error_feedback = GENERATE(true, false);
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model({at::zeros({12, 10}, at::kDouble)});
  const StatefulCommHook hook = power_sgd_hook(group, {.rank = 2, .start_step = 1, .error_feedback = error_feedback});
  const at::Tensor gradient =
      at::mm(two_gradients()[0].narrow(1, 0, 2), two_gradients()[1].narrow(0, 0, 2).narrow(1, 0, 10));
  CHECK(apart(model.pass(hook, {gradient})[0], gradient) < 1e-9);
  model.pass(hook, {at::zeros({12, 10}, at::kDouble)});
  CHECK(apart(model.pass(hook, {gradient})[0], gradient) < 1e-9);
}

TEST_CASE("comm hooks: PowerSGD gives a gradient of a lower rank than its own as it is, in each step") {
  const std::int64_t rank = GENERATE(2, 4, 8);
  CAPTURE(rank);
  const auto type = GENERATE(at::kFloat, at::kDouble);
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model({at::zeros({60, 50}, type)});
  const StatefulCommHook hook = power_sgd_hook(group, {.rank = rank, .start_step = 1});
  torch::manual_seed(3);
  const at::Tensor row = at::randn({1, 50}, type), column = at::randn({60, 1}, type);
  for (int step = 0; step < 10; ++step) {
    CAPTURE(step);
    const at::Tensor gradient = at::mm(column, row) * (step + 1);
    CHECK(apart(model.pass(hook, {gradient})[0], gradient) < (type == at::kFloat ? 1e-5 : 1e-12));
  }
}

namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(6, 40), torch::nn::Tanh(), torch::nn::Linear(40, 30), torch::nn::Tanh(),
                            torch::nn::Linear(30, 3));
  net->to(at::kDouble);
  return net;
}
using Net = DistributedDataParallel<torch::nn::Sequential>;

at::Tensor flat(const std::vector<at::Tensor>& parts) {
  std::vector<at::Tensor> each;
  for (const at::Tensor& part : parts) each.push_back(part.flatten());
  return torch::cat(each).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}
at::Tensor gradients_of(const torch::nn::Sequential& net) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(net->parameters().size());
  for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
  return flat(gradients);
}
at::Tensor left_out_of(const StatefulCommHook& hook, const torch::nn::Sequential& net) {
  std::vector<at::Tensor> parts = hook.state_dict(net->parameters()).left_out;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!parts[i].defined()) parts[i] = torch::zeros({net->parameters()[i].numel()}, at::kDouble);
  return flat(parts);
}
StatefulCommHook make_hook(bool low_rank, const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  return low_rank ? power_sgd_hook(process_group, {.rank = 2, .start_step = 2})
                  : top_k_hook(process_group, {.fraction = 0.1, .start_step = 2});
}

/// Gradients that are the same in each step, of which the first is whole; the parameters stay. How far all that the ranks
/// were given, times the ranks that had a batch, and have left out at the end is from what there was, and how long the
/// latter is beside one gradient.
std::pair<double, double> given_in_a_join(int rank, ShmGroup group, bool low_rank) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::nn::Sequential net = make_net(), plain = make_net();
  Net ddp({.bucket_bytes = 3000, .first_bucket_bytes = 1000}, net, process_group);
  const StatefulCommHook hook = make_hook(low_rank, process_group);
  ddp.register_comm_hook(hook);
  // Rank 0 has most of the batches: in most steps fewer than half of the ranks have one.
  const auto batches_of = [](int of_rank) { return of_rank == 0 ? 40 : 4; };
  Join join({ddp.joinable()});
  at::Tensor given;
  for (int step = 0; step < batches_of(rank); ++step) {
    net->zero_grad();
    loss_of(ddp(batch_of(rank, 0))).backward();
    int active = 0;
    for (int other = 0; other < group.world_size(); ++other) active += step < batches_of(other) ? 1 : 0;
    const at::Tensor all = gradients_of(net) * active;
    given = given.defined() ? given + all : all;
  }
  join.finish();
  at::Tensor wanted = torch::zeros_like(given), one;
  for (int other = 0; other < group.world_size(); ++other) {
    plain->zero_grad();
    loss_of(plain->forward(batch_of(other, 0))).backward();
    wanted += gradients_of(plain) * batches_of(other);
    if (other == 0) one = gradients_of(plain);
  }
  std::vector<at::Tensor> left_out{left_out_of(hook, net)};
  process_group->allreduce(left_out)->wait();
  // Ranks without a batch have taken part in the others' steps, and been given nothing of them here.
  if (rank != 0) return {0, 0};
  return {((given + left_out[0] - wanted).norm() / wanted.norm()).item<double>(),
          (left_out[0].norm() / one.norm()).item<double>()};
}

/// Passes of equal gradients, of which one fails on some ranks when the last bucket's gradient comes, behind the first
/// buckets: how far all that was given in whole passes and is left out is from what there was in these.
double given_around_a_failed_pass(int rank, ShmGroup group, bool low_rank, std::vector<bool> failing,
                                  Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  torch::nn::Sequential net = make_net(), plain = make_net();
  Net ddp({.bucket_bytes = 3000, .first_bucket_bytes = 1000}, net, process_group);
  const StatefulCommHook hook = make_hook(low_rank, process_group);
  ddp.register_comm_hook(hook);
  bool fails = false;
  net->parameters()[0].register_hook([&](const at::Tensor& gradient) {
    if (std::exchange(fails, false)) throw std::runtime_error("a fault");
    return gradient;
  });
  at::Tensor given;
  int passes = 0, failed = 0;
  for (int left = 12; left > 0; --left) {
    fails = passes == 6 && failed == 0 && failing[std::size_t(rank)];
    net->zero_grad();
    try {
      loss_of(ddp(batch_of(rank, 0))).backward();
    } catch (const std::exception&) {
      require(++failed < 20, "the ranks never met again");
      left = 7;
      continue;
    }
    given = given.defined() ? given + gradients_of(net) : gradients_of(net);
    ++passes;
  }
  require(failed > 0 && passes == 12, fmt::format("{} failed and {} whole passes", failed, passes));
  at::Tensor wanted = torch::zeros_like(given);
  for (int other = 0; other < group.world_size(); ++other) {
    plain->zero_grad();
    loss_of(plain->forward(batch_of(other, 0))).backward();
    wanted += gradients_of(plain) * passes / group.world_size();
  }
  std::vector<at::Tensor> left_out{left_out_of(hook, net)};
  process_group->allreduce(left_out)->wait();
  return ((given + left_out[0] / group.world_size() - wanted).norm() / wanted.norm()).item<double>();
}

}  // namespace

TEST_CASE("comm hooks: nothing is lost or grows in a Join in which few ranks have data") {
  const bool low_rank = GENERATE(true, false);
  CAPTURE(low_rank);
  const auto said = spawn({.nprocs = 3}, given_in_a_join, ShmGroup(3), low_rank);
  CHECK(said[0].first < 1e-10);
  CHECK(said[0].second > 1e-3);
  CHECK(said[0].second < 100);
}

TEST_CASE("comm hooks: a pass that fails behind the first of several buckets loses and doubles nothing") {
  const bool low_rank = GENERATE(true, false);
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  const std::vector<bool> failing = GENERATE(std::vector{true, true}, std::vector{false, true});
  CAPTURE(low_rank, int(progress), bool(failing[0]));
  for (const double lost : spawn({.nprocs = 2}, given_around_a_failed_pass, ShmGroup(2), low_rank, failing, progress))
    CHECK(lost < 1e-12);
}

namespace {

/// A layer beside a parameter without elements, or a complex one.
struct OddImpl : torch::nn::Module {
  explicit OddImpl(bool is_complex) {
    odd = register_parameter("odd",
                             is_complex ? torch::ones({4, 6}, at::kComplexDouble) : torch::zeros({0, 3}, at::kDouble));
    layer->to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return odd.is_complex() ? layer(x) + at::real(odd).sum() + at::imag(odd).pow(2).sum() : layer(x) + odd.sum();
  }
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 5))};
  at::Tensor odd;
};
TORCH_MODULE(Odd);

enum class Which { all_reduce, top_k, power_sgd };

std::string with_odd_parameter(int rank, ShmGroup group, Which which, bool is_complex, std::int64_t start_step) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Odd net(is_complex), plain(is_complex);
  copy_values(*net, *plain);
  DistributedDataParallel<Odd> ddp({.bucket_bytes = 1, .first_bucket_bytes = 1}, net, process_group);
  ddp.register_comm_hook(which == Which::all_reduce ? all_reduce_hook(process_group)
                         : which == Which::top_k
                             ? CommHook(top_k_hook(process_group, {.fraction = 1, .start_step = start_step}))
                             : CommHook(power_sgd_hook(process_group, {.rank = 8, .start_step = start_step})));
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    try {
      loss_of(ddp(batch_of(0, step))).backward();
    } catch (const std::invalid_argument& error) {
      return fmt::format("step {}: {}", step, error.what());
    }
    plain->zero_grad();
    loss_of(plain(batch_of(0, step))).backward();
    require_same_gradients(*net, *plain, fmt::format("step {}", step));
  }
  return "went through";
}

}  // namespace

TEST_CASE("comm hooks: a parameter without elements is in no hook's way") {
  for (const Which which : {Which::all_reduce, Which::top_k, Which::power_sgd})
    for (auto& said : spawn({.nprocs = 2}, with_odd_parameter, ShmGroup(2), which, false, std::int64_t(1)))
      CHECK(said == "went through");
}

TEST_CASE("comm hooks: complex parameters are refused in the first step by hooks that cannot reduce them") {
  for (auto& said : spawn({.nprocs = 2}, with_odd_parameter, ShmGroup(2), Which::all_reduce, true, std::int64_t(1)))
    CHECK(said == "went through");
  for (const Which which : {Which::top_k, Which::power_sgd})
    for (auto& said : spawn({.nprocs = 2}, with_odd_parameter, ShmGroup(2), which, true, std::int64_t(1000)))
      CHECK_THAT(said, ContainsSubstring("step 0: ") && ContainsSubstring("a parameter is ComplexDouble [4, 6]"));
}

TEST_CASE("comm hooks: a state of parameters that lay otherwise in memory is refused") {
  const auto group = c10::make_intrusive<HeldGroup>();
  TwoBuckets model({at::zeros({12, 10}, at::kDouble)});
  StatefulCommHook hook = top_k_hook(group);
  model.pass(hook, {two_gradients()[0]});
  const CommHookState state = hook.state_dict(model.parameters);
  hook.load_state_dict(state, {at::zeros({12, 10}, at::kDouble)});
  CHECK_THROWS_WITH(hook.load_state_dict(state, {at::zeros({10, 12}, at::kDouble).t()}),
                    ContainsSubstring("parameter 0, [12, 10], lay in memory by strides [10, 1], and lies by [1, 12]"));
  // Nothing was left out of it.
  hook.load_state_dict({.left_out = {{}}, .factors = {{}}, .strides = state.strides},
                       {at::zeros({10, 12}, at::kDouble).t()});
  // A dimension of one element may have any stride.
  hook.load_state_dict({.left_out = {at::ones({12})}, .factors = {{}}, .strides = {{5, 1}}}, {at::zeros({1, 12})});
}

TEST_CASE("comm hooks: counts below what makes sense are refused with their value") {
  CHECK_THROWS_WITH(power_sgd_hook(nullptr, {.rank = -2}), ContainsSubstring("rank of -2"));
  CHECK_THROWS_WITH(power_sgd_hook(nullptr, {.start_step = -3}), ContainsSubstring("start_step -3"));
  CHECK_THROWS_WITH(power_sgd_hook(nullptr, {.smallest_compression = -1.5}), ContainsSubstring("compression of -1.5"));
  CHECK_THROWS_WITH(top_k_hook(nullptr, {.fraction = -0.5}), ContainsSubstring("fraction of -0.5"));
  CHECK_THROWS_WITH(top_k_hook(nullptr, {.start_step = -1}), ContainsSubstring("start_step -1"));
  CHECK_THROWS_WITH(local_sgd_hook(nullptr, {.start_step = -4}), ContainsSubstring("start_step -4"));
  CHECK_THROWS_WITH(PeriodicAverager(nullptr, {.period = -5}), ContainsSubstring("period of -5"));
  CHECK_THROWS_WITH(PeriodicAverager(nullptr, {.warm_up = -6}), ContainsSubstring("warm_up of -6"));
  CHECK_THROWS_WITH(PeriodicAverager(nullptr).set_steps(-7), ContainsSubstring("set_steps(-7)"));
}

}  // namespace hook_faults_test
