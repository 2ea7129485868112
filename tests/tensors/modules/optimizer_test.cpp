#include <shoal/tensors/optimizer.h>

#include <shoal/ipc/barrier.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;
using namespace torch::optim;

namespace {

using Parameters = std::vector<at::Tensor>;

/// Every kind whose state can be shared, with options that make it keep as much as it can.
std::unique_ptr<Optimizer> make(int kind, const Parameters& parameters) {
  switch (kind) {
    case 0:
      return std::make_unique<SGD>(parameters, SGDOptions(0.05).momentum(0.5));
    case 1:
      return std::make_unique<Adam>(parameters, AdamOptions(0.05).amsgrad(true));
    case 2:
      return std::make_unique<AdamW>(parameters, AdamWOptions(0.05));
    case 3:
      return std::make_unique<RMSprop>(parameters, RMSpropOptions(0.01).momentum(0.5).centered(true));
    default:
      return std::make_unique<Adagrad>(parameters, AdagradOptions(0.05).initial_accumulator_value(0.25));
  }
}
constexpr int kKinds = 5;
/// Tensors of the state a parameter, counts of steps apart.
constexpr int kKept[kKinds] = {1, 3, 2, 3, 1};
constexpr bool kCounts[kKinds] = {false, true, true, true, true};

Parameters fresh_parameters() {
  torch::manual_seed(3);
  Parameters parameters{torch::randn({4, 3}), torch::randn({3})};
  for (auto& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

void step(Optimizer& optimizer, const Parameters& parameters, int number) {
  optimizer.zero_grad();
  for (const auto& parameter : parameters) (parameter * parameter * (number + 1)).sum().backward();
  optimizer.step();
}

/// The second half of the steps, by another process, with the state as it got it.
void go_on(int, int kind, Parameters parameters, OptimizerState state) {
  auto optimizer = make(kind, parameters);
  use_optimizer_state(*optimizer, state);
  for (int number = 3; number < 6; ++number) step(*optimizer, parameters, number);
}

}  // namespace

TEST_CASE("optimizer: shared before its first step it steps as one that is not") {
  for (int kind = 0; kind < kKinds; ++kind) {
    CAPTURE(kind);
    Parameters parameters = fresh_parameters(), alone = fresh_parameters();
    auto optimizer = make(kind, parameters), reference = make(kind, alone);
    share_memory_(*optimizer);
    const OptimizerState state = optimizer_state(*optimizer);
    REQUIRE(state.size() == std::size_t(2 * (kKept[kind] + kCounts[kind])));
    int shared = 0;
    for (const at::Tensor& tensor : state) shared += is_shared(tensor);
    CHECK(shared == 2 * kKept[kind]);
    for (int number = 0; number < 4; ++number) {
      step(*optimizer, parameters, number);
      step(*reference, alone, number);
    }
    for (std::size_t i = 0; i < alone.size(); ++i) CHECK(torch::allclose(parameters[i], alone[i]));
    int still_shared = 0;
    for (const at::Tensor& tensor : optimizer_state(*optimizer)) still_shared += is_shared(tensor);
    CHECK(still_shared == shared);
  }
}

TEST_CASE("optimizer: another process goes on where this one is, on the same state, and this one sees it") {
  for (int kind = 0; kind < kKinds; ++kind) {
    CAPTURE(kind);
    Parameters parameters = fresh_parameters(), alone = fresh_parameters();
    for (auto& parameter : parameters) share_memory_(parameter);
    auto optimizer = make(kind, parameters), reference = make(kind, alone);
    for (int number = 0; number < 3; ++number) step(*optimizer, parameters, number);
    share_memory_(*optimizer);
    const OptimizerState state = optimizer_state(*optimizer);
    optimizer->zero_grad();
    spawn({.nprocs = 1}, go_on, kind, parameters, state);
    for (int number = 0; number < 6; ++number) step(*reference, alone, number);
    for (std::size_t i = 0; i < alone.size(); ++i) CHECK(torch::allclose(parameters[i], alone[i]));
    const OptimizerState expected = optimizer_state(*reference), got = optimizer_state(*optimizer);
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i].dim() > 0) CHECK(torch::allclose(got[i], expected[i]));  // all but the counts of steps
  }
}

TEST_CASE("optimizer: state that does not fit is refused by the name of what does not, and nothing is changed") {
  Parameters parameters = fresh_parameters();
  auto adam = make(1, parameters), sgd = make(0, parameters);
  OptimizerState state = optimizer_state(*adam);
  CHECK_THROWS_WITH(use_optimizer_state(*sgd, state), ContainsSubstring("momentum_buffer of parameter 0"));
  SGD plain(parameters, SGDOptions(0.1));
  CHECK_THROWS_WITH(use_optimizer_state(plain, state), ContainsSubstring("8 tensors, and this optimizer keeps 0"));
  CHECK(optimizer_state(plain).empty());
  CHECK(plain.state().empty());
  state[6] = at::zeros({4});
  CHECK_THROWS_WITH(use_optimizer_state(*adam, state), ContainsSubstring("exp_avg_sq of parameter 1"));
  state[6] = at::zeros({3}, at::device(at::kMeta));
  CHECK_THROWS_WITH(use_optimizer_state(*adam, state),
                    ContainsSubstring("exp_avg_sq of parameter 1 is on meta; send it to cpu first"));
  state[6] = at::zeros({3}, at::kDouble);
  CHECK_THROWS_WITH(use_optimizer_state(*adam, state), ContainsSubstring("exp_avg_sq of parameter 1"));
}

TEST_CASE("optimizer: one whose state was refused before its first step does that step as if nothing had been asked") {
  for (int kind : {0, 1}) {
    Parameters parameters = fresh_parameters();
    auto optimizer = make(kind, parameters);
    CHECK_THROWS_AS(use_optimizer_state(*optimizer, {}), std::invalid_argument);
    CHECK(optimizer->state().empty());
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::ones_like(parameter);
    optimizer->step();
    CHECK(optimizer->state().size() == parameters.size());
  }
}

TEST_CASE("optimizer: LBFGS is refused by name") {
  LBFGS optimizer(fresh_parameters(), LBFGSOptions(0.1));
  CHECK_THROWS_WITH(share_memory_(optimizer), ContainsSubstring("LBFGS"));
}
