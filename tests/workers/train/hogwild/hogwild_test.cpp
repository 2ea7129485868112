#include <shoal/workers/train/hogwild.h>

#include <shoal/ipc/barrier.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/share.h>
#include <torch/torch.h>

#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace hogwild_test {

namespace {

torch::optim::SGDOptions options() { return torch::optim::SGDOptions(0.05).momentum(0.5); }

/// Ranks take turns, so that the outcome is known: as if one process had done all steps.
void take_turns(int rank, std::vector<at::Tensor> parameters, SharedOptimizerState state, Barrier turn, int ranks) {
  at::set_num_threads(1);
  for (auto& parameter : parameters) parameter.requires_grad_();
  torch::optim::SGD optimizer(parameters, options());
  use_optimizer_state(optimizer, state);
  for (int step = 0; step < 6; ++step) {
    if (step % ranks == rank) {
      optimizer.zero_grad();
      for (auto& parameter : parameters) (parameter * parameter * (step + 1)).sum().backward();
      optimizer.step();
    }
    turn.wait();
  }
}

/// All at once, to the minimum of a quadratic that all share.
void run_wild(int, std::vector<at::Tensor> parameters, SharedOptimizerState state) {
  at::set_num_threads(1);
  for (auto& parameter : parameters) parameter.requires_grad_();
  torch::optim::SGD optimizer(parameters, options());
  use_optimizer_state(optimizer, state);
  for (int step = 0; step < 400; ++step) {
    optimizer.zero_grad();
    for (auto& parameter : parameters) (parameter - 1).pow(2).sum().backward();
    optimizer.step();
  }
}

std::vector<at::Tensor> shared_parameters() {
  torch::manual_seed(0);
  std::vector<at::Tensor> parameters{torch::randn({30, 20}), torch::randn({20})};
  share_memory_(parameters);
  for (auto& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

}  // namespace

TEST_CASE("Hogwild: processes that take turns do what one process does, momentum included") {
  auto parameters = shared_parameters();
  std::vector<at::Tensor> alone;
  for (auto& parameter : parameters) alone.push_back(parameter.detach().clone().requires_grad_());
  torch::optim::SGD optimizer(parameters, options()), reference(alone, options());
  auto state = share_optimizer_state(optimizer);
  REQUIRE(state.size() == 2);
  spawn({.nprocs = 2}, take_turns, parameters, state, Barrier(2), 2);
  for (int step = 0; step < 6; ++step) {
    reference.zero_grad();
    for (auto& parameter : alone) (parameter * parameter * (step + 1)).sum().backward();
    reference.step();
  }
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(torch::allclose(parameters[i], alone[i], 1e-5, 1e-7));
}

TEST_CASE("Hogwild: processes that run at once come to the common minimum") {
  auto parameters = shared_parameters();
  torch::optim::SGD optimizer(parameters, options());
  spawn({.nprocs = 2}, run_wild, parameters, share_optimizer_state(optimizer));
  for (auto& parameter : parameters) CHECK(torch::allclose(parameter, torch::ones_like(parameter), 1e-3, 1e-3));
}

TEST_CASE("Hogwild: an optimizer that has run goes on from its momentum") {
  auto parameters = shared_parameters();
  torch::optim::SGD optimizer(parameters, options());
  (parameters[0] * 3).sum().backward();
  (parameters[1] * 5).sum().backward();
  optimizer.step();
  auto state = share_optimizer_state(optimizer);
  CHECK(torch::equal(state[0], torch::full({30, 20}, 3.f)));
  CHECK(torch::equal(state[1], torch::full({20}, 5.f)));
  for (auto& buffer : state) CHECK(is_shared(buffer));
}

TEST_CASE("Hogwild: state that does not fit its optimizer is refused") {
  std::vector<at::Tensor> private_parameters{torch::randn({3})};
  torch::optim::SGD not_shared(private_parameters, options());
  CHECK_THROWS_WITH(share_optimizer_state(not_shared), ContainsSubstring("parameter 0 is not in shared memory"));
  auto parameters = shared_parameters();
  torch::optim::SGD optimizer(parameters, options()), plain(parameters, torch::optim::SGDOptions(0.1));
  CHECK(share_optimizer_state(plain).empty());
  auto state = share_optimizer_state(optimizer);
  CHECK_THROWS_WITH(use_optimizer_state(plain, state), ContainsSubstring("2 tensors, and this optimizer keeps 0"));
  std::swap(state[0], state[1]);
  CHECK_THROWS_WITH(use_optimizer_state(optimizer, state),
                    ContainsSubstring("momentum_buffer of parameter 0 has another shape"));
}

}  // namespace hogwild_test
