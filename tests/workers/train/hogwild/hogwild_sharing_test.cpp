// Optimizers of Hogwild that several processes step with.
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/process.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/module_state.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/hogwild_optimizer.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace hogwild_sharing_test {

namespace {

using Tensors = std::vector<at::Tensor>;

struct SharedNetImpl : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 30))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(30, 1))};
  at::Tensor forward(const at::Tensor& input) { return last->forward(torch::tanh(first->forward(input))); }
};
TORCH_MODULE(SharedNet);

SharedNet make_net() {
  torch::manual_seed(0);
  SharedNet net;
  share_memory_(net);
  return net;
}

void one_step(SharedNet& net, hogwild::Optimizer& optimizer, int step) {
  torch::manual_seed(1000 + step);
  const at::Tensor input = torch::randn({16, 6});
  optimizer.zero_grad();
  torch::mse_loss(net->forward(input), input.sum(1, true)).backward();
  optimizer.step();
}

/// Ranks take turns, so the outcome is known.
template <class Optimizer>
void take_turns(int rank, SharedNet net, Optimizer optimizer, Barrier turn) {
  at::set_num_threads(1);
  optimizer.attach(*net);
  for (int step = 0; step < 12; ++step) {
    if (step % 2 == rank) one_step(net, optimizer, step);
    turn.wait();
  }
}

template <class Optimizer>
void check_turns(const typename Optimizer::Options& options, const hogwild::SharingOptions& sharing) {
  at::set_num_threads(1);
  SharedNet together = make_net(), alone = make_net();
  Optimizer shared(together->parameters(), options, sharing);
  Optimizer own(alone->parameters(), options, sharing);
  spawn({.nprocs = 2}, take_turns<Optimizer>, together, shared, Barrier(2));
  for (int step = 0; step < 12; ++step) one_step(alone, own, step);
  for (std::size_t i = 0; i < alone->parameters().size(); ++i)
    CHECK(torch::equal(together->parameters()[i], alone->parameters()[i]));
  const OptimizerState state = shared.state(), expected = own.state();
  REQUIRE(state.size() == expected.size());
  for (std::size_t i = 0; i < state.size(); ++i) CHECK(torch::equal(state[i], expected[i]));
  CHECK(shared.steps() == 12);
  CHECK(shared.finished_steps() == 12);
  shared.set_steps(500);  // of a training that this one goes on with
  CHECK(shared.steps() == 500);
  CHECK(shared.finished_steps() == 500);
  CHECK_THROWS_AS(shared.set_steps(-1), std::invalid_argument);
}

}  // namespace

TEST_CASE("hogwild sharing: processes that take turns do bit for bit what one process does") {
  for (const auto locking : {hogwild::Locking::none, hogwild::Locking::striped}) {
    const hogwild::SharingOptions sharing{.locking = locking, .stripe_bytes = 256};
    check_turns<hogwild::SGD>({.lr = 0.05, .momentum = 0.5, .dampening = 0.1}, sharing);
    check_turns<hogwild::Adam>({.lr = 0.01, .amsgrad = true}, sharing);
    check_turns<hogwild::AdamW>({.lr = 0.01}, sharing);
    check_turns<hogwild::Adagrad>({.lr = 0.05, .lr_decay = 0.1}, sharing);
    check_turns<hogwild::RMSprop>({.lr = 0.01, .momentum = 0.5, .centered = true}, sharing);
  }
}

namespace {

constexpr int kSteps = 300;

/// Each step takes one from every element, or from every second row.
void count_down(int rank, Tensors parameters, hogwild::SGD optimizer, Barrier start, bool sparse) {
  at::set_num_threads(1);
  optimizer.attach(parameters);
  at::Tensor rows = torch::arange(rank, parameters[0].size(0) - 1 + rank);  // all but the last, or all but the first
  start.wait();
  for (int step = 0; step < kSteps; ++step) {
    parameters[0].mutable_grad() =
        sparse ? torch::sparse_coo_tensor(rows.unsqueeze(0), torch::ones({rows.numel(), parameters[0].size(1)}),
                                          parameters[0].sizes())
               : torch::ones_like(parameters[0]);
    optimizer.step();
  }
}

}  // namespace

TEST_CASE("hogwild sharing: with striped locks no update is lost") {
  for (const bool sparse : {false, true}) {
    INFO((sparse ? "sparse" : "dense"));
    Tensors parameters{share_memory_(torch::zeros({500, 32}))};
    const hogwild::SGD optimizer(parameters, {.lr = 1}, {.locking = hogwild::Locking::striped, .stripe_bytes = 4096});
    spawn({.nprocs = 2}, count_down, parameters, optimizer, Barrier(2), sparse);
    CHECK(optimizer.steps() == 2 * kSteps);
    at::Tensor expected = torch::full({500, 32}, -2.0 * kSteps);
    if (sparse) {
      expected[0].fill_(-kSteps);
      expected[499].fill_(-kSteps);
    }
    CHECK(torch::equal(parameters[0], expected));
  }
}

TEST_CASE("hogwild sharing: the count of steps is exact without locks, too") {
  Tensors parameters{share_memory_(torch::zeros({4, 4}))};
  const hogwild::SGD optimizer(parameters, {.lr = 1});
  spawn({.nprocs = 3}, count_down, parameters, optimizer, Barrier(3), false);
  CHECK(optimizer.steps() == 3 * kSteps);
  CHECK(optimizer.finished_steps() == 3 * kSteps);
}

namespace {

/// To the minimum, all at once.
void descend(int rank, SharedNet net, hogwild::Adam optimizer) {
  at::set_num_threads(1);
  optimizer.attach(*net);
  for (int step = 0; step < 400; ++step) one_step(net, optimizer, 2 * step + rank);
}

double loss_of(SharedNet& net) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  const at::Tensor input = torch::randn({200, 6});
  return torch::mse_loss(net->forward(input), input.sum(1, true)).item<double>();
}

}  // namespace

TEST_CASE("hogwild sharing: processes that run at once come to the minimum") {
  for (const auto locking : {hogwild::Locking::none, hogwild::Locking::striped}) {
    SharedNet net = make_net();
    const double before = loss_of(net);
    spawn({.nprocs = 2}, descend, net, hogwild::Adam(net->parameters(), {.lr = 0.01}, {.locking = locking}));
    CHECK(loss_of(net) < 0.1 * before);
  }
}

namespace {

std::string forget_to_attach(SharedNet net, hogwild::SGD optimizer) {
  try {
    one_step(net, optimizer, 0);
  } catch (const std::logic_error& error) {
    if (optimizer.steps() != 0) return "a step was counted";
    return error.what();
  }
  return "went through";
}

double rate_seen(hogwild::SGD optimizer, Event changed) {
  changed.wait();
  return optimizer.lr();
}

/// The parameters that the optimizer brings can be used as they are.
void use_its_own(hogwild::SGD optimizer) {
  (optimizer.parameters()[0] * 3).sum().backward();
  optimizer.step();
}

}  // namespace

TEST_CASE("hogwild sharing: an optimizer that came and was not attached says so") {
  SharedNet net = make_net();
  Process process({}, forget_to_attach, net, hogwild::SGD(net->parameters(), {.lr = 1}));
  process.start();
  CHECK_THAT(process.result(), ContainsSubstring("attach(module)"));
}

TEST_CASE("hogwild sharing: the rate is one for all, and parameters come along") {
  Tensors parameters{share_memory_(torch::zeros({3})).set_requires_grad(true)};
  hogwild::SGD optimizer(parameters, {.lr = 1});
  Event changed;
  Process process({}, rate_seen, optimizer, changed);
  process.start();
  optimizer.set_lr(0.125);
  changed.set();
  CHECK(process.result() == 0.125);
  spawn({.nprocs = 1}, +[](int, hogwild::SGD its) { use_its_own(its); }, optimizer);
  CHECK(torch::equal(parameters[0].detach(), torch::full({3}, -0.375f)));
}

namespace {

enum class End { waits, leaves, dies };

/// Does one step, and then no more.
void stay_behind(Tensors parameters, hogwild::SGD optimizer, Event there, Event go, End end) {
  optimizer.attach(parameters);
  parameters[0].mutable_grad() = torch::ones_like(parameters[0]);
  optimizer.step();
  there.set();
  go.wait();
  if (end == End::dies) std::raise(SIGKILL);
  if (end == End::leaves) {
    optimizer.leave();
    Event().wait(std::chrono::hours(1));  // lives until it is killed
  }
}

}  // namespace

TEST_CASE("hogwild sharing: who is too far ahead waits, until the timeout") {
  Tensors parameters{share_memory_(torch::zeros({3}))};
  hogwild::SGD optimizer(parameters, {.lr = 1}, {.staleness_bound = 2, .timeout = std::chrono::milliseconds(30)});
  Event there, go;
  Process process({}, stay_behind, parameters, optimizer, there, go, End::waits);
  process.start();
  there.wait();
  const auto step = [&] {
    parameters[0].mutable_grad() = torch::ones({3});
    optimizer.step();
  };
  step();
  step();
  CHECK_THROWS_WITH(step(), ContainsSubstring("3 steps behind this one, where 2 are allowed") &&
                                ContainsSubstring(std::to_string(process.pid())));
  CHECK_THROWS_AS(step(), TimeoutError);
  CHECK(optimizer.finished_steps() == 5);
  // The other's end is its last handle's.
  go.set();
  process.join();
  step();
  CHECK(optimizer.finished_steps() == 6);
}

TEST_CASE("hogwild sharing: nobody waits for a process that left or died") {
  for (const End end : {End::leaves, End::dies})
    for (const std::int64_t bound : {0, 3}) {
      INFO((end == End::dies ? "dies" : "leaves") << ", bound " << bound);
      Tensors parameters{share_memory_(torch::zeros({3}))};
      hogwild::SGD optimizer(parameters, {.lr = 1}, {.staleness_bound = bound});
      Event there, go;
      Process process({}, stay_behind, parameters, optimizer, there, go, end);
      process.start();
      there.wait();
      go.set();
      for (int step = 0; step < 50; ++step) {
        parameters[0].mutable_grad() = torch::ones({3});
        optimizer.step();
      }
      CHECK(optimizer.finished_steps() == 51);
      CHECK(torch::equal(parameters[0], torch::full({3}, -51.f)));
      process.kill();
      process.join();
    }
}

TEST_CASE("hogwild sharing: a process that has got the optimizer several times does not wait for itself") {
  Tensors parameters{share_memory_(torch::zeros({3}))};
  hogwild::SGD optimizer(parameters, {.lr = 1}, {.staleness_bound = 1, .timeout = std::chrono::milliseconds(30)});
  Queue<hogwild::SGD> queue(1);
  queue.put(optimizer);
  auto again = std::make_unique<hogwild::SGD>(queue.get());
  again->attach(parameters);
  const auto step = [&](hogwild::SGD& with) {
    parameters[0].mutable_grad() = torch::ones({3});
    with.step();
  };
  for (int i = 0; i < 3; ++i) {
    step(optimizer);
    step(*again);
    step(*again);
  }
  Event there, go;
  Process process({}, stay_behind, parameters, optimizer, there, go, End::waits);
  process.start();
  there.wait();
  // The other process counts, whichever handle steps; it has come one step further.
  step(*again);
  step(optimizer);
  CHECK_THROWS_AS(step(*again), TimeoutError);
  again.reset();
  step(optimizer);  // which comes anew, where the other is
  CHECK_THROWS_AS(step(optimizer), TimeoutError);
  go.set();
  process.join();
  step(optimizer);
  CHECK(optimizer.finished_steps() == 16);
}

namespace {

/// How far this process was ahead of the other after a step, at most.
std::int64_t most_ahead(int rank, Tensors parameters, hogwild::SGD optimizer, at::Tensor done, Barrier start) {
  at::set_num_threads(1);
  optimizer.attach(parameters);
  parameters[0].mutable_grad() = torch::ones_like(parameters[0]);
  optimizer.step();
  start.wait();  // both have come, with clocks of 1 and of 1 or 2
  std::int64_t most = 0;
  auto* counts = done.data_ptr<std::int64_t>();
  for (int step = 0; step < 400; ++step) {
    parameters[0].mutable_grad() = torch::ones_like(parameters[0]);
    // Rank 1 has more to do.
    if (rank == 1)
      for (int i = 0; i < 20; ++i) torch::randn({1000}).sum();
    optimizer.step();
    std::atomic_ref(counts[rank]).store(step + 1);
    const std::int64_t other = std::atomic_ref(counts[1 - rank]).load();
    most = std::max(most, step + 1 - other);
  }
  optimizer.leave();
  return most;
}

}  // namespace

TEST_CASE("hogwild sharing: processes stay within the bound of each other") {
  Tensors parameters{share_memory_(torch::zeros({64}))};
  const hogwild::SGD optimizer(parameters, {.lr = 1}, {.staleness_bound = 4});
  const at::Tensor done = share_memory_(torch::zeros({2}, at::kLong));
  const auto most = spawn({.nprocs = 2}, most_ahead, parameters, optimizer, done, Barrier(2));
  // One more for the clocks' start, and one where the other has done a step and not yet said so.
  CHECK(most[0] <= 6);
  CHECK(most[1] <= 6);
  CHECK(optimizer.steps() == 802);
}

}  // namespace hogwild_sharing_test
