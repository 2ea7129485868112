// Optimizers of Hogwild in one process, beside torch's own.
#include <shoal/workers/train/hogwild_optimizer.h>

#include <ATen/ops/_efficientzerotensor.h>
#include <fmt/format.h>
#include <shoal/tensors/optimizer.h>
#include <shoal/tensors/share.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace hogwild_optimizer_test {

namespace {

namespace optim = torch::optim;
using Tensors = std::vector<at::Tensor>;
using hogwild::SharingOptions;

struct Pair {
  std::string name;
  std::function<std::shared_ptr<optim::Optimizer>(const Tensors&)> torchs;
  std::function<std::shared_ptr<hogwild::Optimizer>(const Tensors&, const SharingOptions&)> own;
};

template <class Reference, class Own, class ReferenceOptions>
Pair pair(std::string name, ReferenceOptions reference, typename Own::Options own) {
  return {std::move(name), [=](const Tensors& p) { return std::make_shared<Reference>(p, reference); },
          [=](const Tensors& p, const SharingOptions& sharing) { return std::make_shared<Own>(p, own, sharing); }};
}

std::vector<Pair> pairs() {
  using namespace optim;
  using Betas = std::tuple<double, double>;
  return {
      pair<SGD, hogwild::SGD>("SGD", SGDOptions(0.1), {.lr = 0.1}),
      pair<SGD, hogwild::SGD>("SGD with decay", SGDOptions(0.1).weight_decay(0.1), {.lr = 0.1, .weight_decay = 0.1}),
      pair<SGD, hogwild::SGD>("SGD with momentum", SGDOptions(0.1).momentum(0.9), {.lr = 0.1, .momentum = 0.9}),
      pair<SGD, hogwild::SGD>("SGD with dampening", SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.1),
                              {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1}),
      pair<SGD, hogwild::SGD>("SGD, Nesterov's", SGDOptions(0.1).momentum(0.9).nesterov(true),
                              {.lr = 0.1, .momentum = 0.9, .nesterov = true}),
      pair<Adam, hogwild::Adam>("Adam", AdamOptions(0.01), {.lr = 0.01}),
      pair<Adam, hogwild::Adam>("Adam with amsgrad",
                                AdamOptions(0.01).betas(Betas(0.8, 0.9)).eps(1e-6).weight_decay(0.1).amsgrad(true),
                                {.lr = 0.01, .betas = {0.8, 0.9}, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true}),
      pair<AdamW, hogwild::AdamW>("AdamW", AdamWOptions(0.01), {.lr = 0.01}),
      pair<AdamW, hogwild::AdamW>("AdamW with amsgrad", AdamWOptions(0.01).weight_decay(0.3).amsgrad(true),
                                  {.lr = 0.01, .weight_decay = 0.3, .amsgrad = true}),
      pair<Adagrad, hogwild::Adagrad>("Adagrad", AdagradOptions(0.05), {.lr = 0.05}),
      pair<Adagrad, hogwild::Adagrad>(
          "Adagrad with all", AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.1).initial_accumulator_value(0.2),
          {.lr = 0.05, .lr_decay = 0.1, .weight_decay = 0.1, .initial_accumulator_value = 0.2}),
      pair<RMSprop, hogwild::RMSprop>("RMSprop", RMSpropOptions(0.01), {.lr = 0.01}),
      pair<RMSprop, hogwild::RMSprop>("RMSprop with momentum", RMSpropOptions(0.01).momentum(0.5).weight_decay(0.1),
                                      {.lr = 0.01, .weight_decay = 0.1, .momentum = 0.5}),
      pair<RMSprop, hogwild::RMSprop>("RMSprop with all", RMSpropOptions(0.01).alpha(0.9).momentum(0.5).centered(true),
                                      {.lr = 0.01, .alpha = 0.9, .momentum = 0.5, .centered = true})};
}

/// A matrix, a vector that no vector register divides, a convolution's weight in another memory format, a number.
Tensors make_parameters(at::ScalarType type) {
  torch::manual_seed(0);
  Tensors all{torch::randn({37, 21}), torch::randn({53}),
              torch::randn({8, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast), torch::randn({})};
  for (at::Tensor& parameter : all) parameter = parameter.to(type);
  return all;
}

Tensors leaves(const Tensors& values, bool shared) {
  Tensors all;
  for (const at::Tensor& value : values) {
    all.push_back(value.detach().clone());
    if (shared) share_memory_(all.back());
    all.back().set_requires_grad(true);
  }
  return all;
}

/// The same gradients for both; now and then one has none.
void set_gradients(Tensors& first, Tensors& second, int step) {
  torch::manual_seed(100 + step);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const at::Tensor gradient = torch::randn(first[i].sizes(), first[i].options().requires_grad(false));
    const bool none = i == 1 && step % 5 == 2;
    first[i].mutable_grad() = none ? at::Tensor() : gradient.clone();
    second[i].mutable_grad() = none ? at::Tensor() : gradient.clone();
  }
}

void check_close(const Tensors& own, const Tensors& reference, double tolerance) {
  for (std::size_t i = 0; i < own.size(); ++i) {
    INFO("parameter " << i << ", " << (own[i] - reference[i]).abs().max().item<double>() << " apart");
    CHECK(torch::allclose(own[i].detach(), reference[i].detach(), tolerance, tolerance));
  }
}

SharingOptions striped(std::size_t bytes) { return {.locking = hogwild::Locking::striped, .stripe_bytes = bytes}; }

}  // namespace

TEST_CASE("hogwild optimizers: one process alone gets torch.optim's numbers, with locks and without") {
  at::set_num_threads(1);  // thousands of steps of small tensors: threads that meet in each would wait for a CPU
  for (const Pair& pair : pairs())
    for (const auto type : {at::kFloat, at::kDouble})
      for (const std::size_t stripe_bytes : {std::size_t(0), std::size_t(200), std::size_t(64 << 10)}) {
        INFO(pair.name << ", " << c10::toString(type) << ", stripes of " << stripe_bytes);
        Tensors mine = leaves(make_parameters(type), true), theirs = leaves(make_parameters(type), false);
        const auto reference = pair.torchs(theirs);
        const auto own = pair.own(mine, stripe_bytes == 0 ? SharingOptions() : striped(stripe_bytes));
        for (int step = 0; step < 30; ++step) {
          set_gradients(mine, theirs, step);
          own->step();
          reference->step();
        }
        check_close(mine, theirs, type == at::kFloat ? 1e-6 : 1e-12);
        CHECK(own->steps() == 30);
        CHECK(own->finished_steps() == 30);
      }
}

TEST_CASE("hogwild optimizers: half types are computed in float") {
  for (const Pair& pair : pairs())
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      INFO(pair.name << ", " << c10::toString(type));
      Tensors mine = leaves(make_parameters(type), true);
      Tensors theirs;
      for (const at::Tensor& parameter : leaves(make_parameters(type), false))
        theirs.push_back(parameter.detach().to(at::kFloat).set_requires_grad(true));
      const auto reference = pair.torchs(theirs);
      const auto own = pair.own(mine, {});
      for (int step = 0; step < 3; ++step) {
        torch::manual_seed(step);
        for (std::size_t i = 0; i < mine.size(); ++i) {
          // Not near zero, where Adam's first steps divide by what a half type has rounded.
          mine[i].mutable_grad() = (torch::rand(mine[i].sizes()) + 0.5).to(type).contiguous();
          theirs[i].mutable_grad() = mine[i].grad().to(at::kFloat);
        }
        own->step();
        reference->step();
      }
      const double tolerance = type == at::kHalf ? 0.01 : 0.05;
      for (std::size_t i = 0; i < mine.size(); ++i)
        CHECK(torch::allclose(mine[i].detach().to(at::kFloat), theirs[i].detach(), tolerance, tolerance));
    }
}

TEST_CASE("hogwild optimizers: maximize goes the other way") {
  const auto run = [](auto make, double sign) {
    Tensors parameters = leaves(make_parameters(at::kFloat), true);
    const auto optimizer = make(parameters);
    for (int step = 0; step < 5; ++step) {
      torch::manual_seed(step);
      for (at::Tensor& parameter : parameters) parameter.mutable_grad() = sign * torch::randn(parameter.sizes());
      optimizer->step();
    }
    return parameters;
  };
  const auto compare = [&]<class Optimizer>(std::type_identity<Optimizer>) {
    const auto make = [](bool maximize) {
      return [=](const Tensors& parameters) {
        return std::make_shared<Optimizer>(parameters, typename Optimizer::Options{.lr = 0.02, .maximize = maximize});
      };
    };
    check_close(run(make(true), -1), run(make(false), 1), 1e-6);
  };
  compare(std::type_identity<hogwild::SGD>());
  compare(std::type_identity<hogwild::Adam>());
  compare(std::type_identity<hogwild::Adagrad>());
  compare(std::type_identity<hogwild::RMSprop>());
  // Its default decay is not turned round.
  const auto adamw = [](bool maximize) {
    return [=](const Tensors& parameters) {
      return std::make_shared<hogwild::AdamW>(parameters, hogwild::AdamWOptions{.lr = 0.02, .maximize = maximize});
    };
  };
  check_close(run(adamw(true), -1), run(adamw(false), 1), 1e-6);
}

namespace {

at::Tensor sparse(const std::vector<std::int64_t>& rows, const at::Tensor& values, at::IntArrayRef sizes) {
  return torch::sparse_coo_tensor(torch::tensor(rows, at::kLong).unsqueeze(0), values, sizes);
}

}  // namespace

TEST_CASE("hogwild optimizers: sparse gradients of all rows are dense ones") {
  std::vector<std::int64_t> rows(40);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::int64_t(i * 7 % rows.size());
  for (const Pair& pair : pairs())
    for (const std::size_t stripe_bytes : {std::size_t(0), std::size_t(100), std::size_t(4096)}) {
      INFO(pair.name << ", stripes of " << stripe_bytes);
      const SharingOptions sharing = stripe_bytes == 0 ? SharingOptions() : striped(stripe_bytes);
      torch::manual_seed(0);
      const Tensors values{torch::randn({40, 6})};
      Tensors by_rows = leaves(values, true), whole = leaves(values, false);
      const auto own = pair.own(by_rows, sharing);
      const auto reference = pair.torchs(whole);
      for (int step = 0; step < 10; ++step) {
        torch::manual_seed(100 + step);
        const at::Tensor gradient = torch::randn({40, 6});
        by_rows[0].mutable_grad() = sparse(rows, gradient.index_select(0, torch::tensor(rows)), {40, 6});
        whole[0].mutable_grad() = gradient;
        own->step();
        reference->step();
      }
      check_close(by_rows, whole, 2e-6);
    }
}

TEST_CASE("hogwild optimizers: a sparse gradient changes its rows alone, of the state, too") {
  for (const Pair& pair : pairs()) {
    INFO(pair.name);
    torch::manual_seed(0);
    Tensors table = leaves({torch::randn({20, 4})}, true);
    const auto own = pair.own(table, {});
    table[0].mutable_grad() = torch::randn({20, 4});
    own->step();
    const at::Tensor before = table[0].detach().clone();
    OptimizerState state_before;
    for (const at::Tensor& part : own->state()) state_before.push_back(part.clone());
    // Row 11 twice: its gradients add up.
    table[0].mutable_grad() = sparse({11, 3, 11}, torch::ones({3, 4}), {20, 4});
    own->step();
    const OptimizerState state = own->state();
    for (std::int64_t row = 0; row < 20; ++row) {
      INFO("row " << row);
      const bool touched = row == 3 || row == 11;
      CHECK(torch::equal(table[0].detach()[row], before[row]) == !touched);
      for (std::size_t i = 0; i < state.size(); ++i)
        if (state[i].dim() == 2 && !touched) CHECK(torch::equal(state[i][row], state_before[i][row]));
    }
  }
}

TEST_CASE("hogwild optimizers: rows that come twice count with their sum") {
  Tensors table = leaves({torch::zeros({4, 2})}, true);
  hogwild::SGD optimizer(table, {.lr = 1});
  table[0].mutable_grad() = sparse({1, 3, 1}, torch::tensor({{1.f, 2.f}, {4.f, 8.f}, {16.f, 32.f}}), {4, 2});
  optimizer.step();
  CHECK(torch::equal(table[0].detach(), torch::tensor({{0.f, 0.f}, {-17.f, -34.f}, {0.f, 0.f}, {-4.f, -8.f}})));
}

TEST_CASE("hogwild optimizers: an embedding's sparse gradients through Adagrad and SGD are torch's") {
  for (const Pair& pair : pairs()) {
    if (pair.name != "SGD" && pair.name != "Adagrad") continue;
    INFO(pair.name);
    const auto make = [] {
      torch::manual_seed(0);
      return torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 8).sparse(true));
    };
    torch::nn::Embedding mine = make(), theirs = make();
    Tensors shared = mine->parameters();
    share_memory_(shared);
    const auto own = pair.own(shared, {});
    const auto reference = pair.torchs(theirs->parameters());
    for (int step = 0; step < 20; ++step) {
      torch::manual_seed(step);
      const at::Tensor words = torch::randint(50, {12}, at::kLong);
      own->zero_grad();
      reference->zero_grad();
      mine->forward(words).pow(2).sum().backward();
      theirs->forward(words).pow(2).sum().backward();
      own->step();
      reference->step();
    }
    check_close(mine->parameters(), theirs->parameters(), 1e-6);
  }
}

TEST_CASE("hogwild optimizers: sparse Adam is torch's SparseAdam") {
  const double lr = 0.02, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  torch::manual_seed(0);
  const at::Tensor start = torch::randn({30, 5}, at::kDouble);
  Tensors table = leaves({start}, true);
  at::Tensor reference = start.clone(), mean = torch::zeros_like(start), square = torch::zeros_like(start);
  hogwild::Adam own(table, {.lr = lr});
  for (int step = 1; step <= 25; ++step) {
    torch::manual_seed(step);
    const at::Tensor rows = torch::randperm(30).slice(0, 0, 7);
    const at::Tensor values = torch::randn({7, 5}, at::kDouble);
    table[0].mutable_grad() = torch::sparse_coo_tensor(rows.unsqueeze(0), values, {30, 5});
    own.step();
    const at::Tensor m = mean.index_select(0, rows) * beta1 + values * (1 - beta1);
    const at::Tensor v = square.index_select(0, rows) * beta2 + values * values * (1 - beta2);
    mean.index_copy_(0, rows, m);
    square.index_copy_(0, rows, v);
    const double rate = lr * std::sqrt(1 - std::pow(beta2, step)) / (1 - std::pow(beta1, step));
    // SparseAdam adds eps before the bias is taken out; Adam after it. The difference is far below the tolerance.
    reference.index_add_(0, rows, -rate * m / (v.sqrt() + eps));
  }
  CHECK(torch::allclose(table[0].detach(), reference, 1e-5, 1e-5));
}

TEST_CASE("hogwild optimizers: gradients are clipped as torch.nn.utils does") {
  const auto run = [](const SharingOptions& sharing, const std::function<void(Tensors&)>& clip) {
    Tensors mine = leaves(make_parameters(at::kDouble), true), theirs = leaves(make_parameters(at::kDouble), false);
    hogwild::SGD own(mine, {.lr = 0.5}, sharing);
    optim::SGD reference(theirs, 0.5);
    for (int step = 0; step < 4; ++step) {
      set_gradients(mine, theirs, step);
      own.step();
      clip(theirs);
      reference.step();
    }
    check_close(mine, theirs, 1e-12);
  };
  run({.clip_grad_norm = 3.0}, [](Tensors& all) { torch::nn::utils::clip_grad_norm_(all, 3.0); });
  run({.clip_grad_norm = 3.0, .clip_grad_norm_type = 1},
      [](Tensors& all) { torch::nn::utils::clip_grad_norm_(all, 3.0, 1.0); });
  const double largest = std::numeric_limits<double>::infinity();
  run({.clip_grad_norm = 0.5, .clip_grad_norm_type = largest},
      [=](Tensors& all) { torch::nn::utils::clip_grad_norm_(all, 0.5, largest); });
  run({.clip_grad_norm = 1e9}, [](Tensors&) {});
  // A gradient that is no number: the others are not taken at their full length.
  Tensors two = leaves({torch::zeros({1}), torch::zeros({1})}, true);
  hogwild::SGD of_two(two, {.lr = 1}, {.clip_grad_norm = 1.0});
  two[0].mutable_grad() = torch::full({1}, std::nan(""));
  two[1].mutable_grad() = torch::full({1}, 1e8);
  of_two.step();
  CHECK(std::isnan(two[1].item<double>()));
  run({.clip_grad_value = 0.25}, [](Tensors& all) { torch::nn::utils::clip_grad_value_(all, 0.25); });
  run({.clip_grad_value = 0.25, .clip_grad_norm = 3.0}, [](Tensors& all) {
    torch::nn::utils::clip_grad_value_(all, 0.25);
    torch::nn::utils::clip_grad_norm_(all, 3.0);
  });

  Tensors table = leaves({torch::zeros({4, 1})}, true);
  hogwild::SGD own(table, {.lr = 1}, {.clip_grad_norm = 1.0});
  table[0].mutable_grad() = sparse({2, 0, 2}, torch::tensor({{1.f}, {3.f}, {3.f}}), {4, 1});
  own.step();
  CHECK(torch::allclose(table[0].detach().flatten(), torch::tensor({-0.6f, 0.f, -0.8f, 0.f}), 1e-5, 1e-5));
}

TEST_CASE("hogwild optimizers: groups have options of their own, and rates can be changed") {
  Tensors mine = leaves({torch::zeros({3}), torch::zeros({3})}, true);
  hogwild::SGD optimizer({{{mine[0]}, {.lr = 1}}, {{mine[1]}, {.lr = 0.5}}});
  CHECK(optimizer.groups() == 2);
  CHECK(optimizer.lr(1) == 0.5);
  const auto step = [&] {
    for (at::Tensor& parameter : mine) parameter.mutable_grad() = torch::ones({3});
    optimizer.step();
  };
  step();
  optimizer.set_lr(2, 1);
  step();
  optimizer.set_lr(10);
  step();
  CHECK(torch::equal(mine[0].detach(), torch::full({3}, -12.f)));
  CHECK(torch::equal(mine[1].detach(), torch::full({3}, -12.5f)));
  CHECK_THROWS_AS(optimizer.lr(2), std::out_of_range);
  CHECK_THROWS_AS(optimizer.set_lr(-1), std::invalid_argument);
}

TEST_CASE("hogwild optimizers: the state goes on in torch's optimizer, and comes back") {
  for (const Pair& pair : pairs()) {
    INFO(pair.name);
    Tensors mine = leaves(make_parameters(at::kDouble), true), theirs = leaves(make_parameters(at::kDouble), false);
    Tensors anew = leaves(make_parameters(at::kDouble), true);
    const auto own = pair.own(mine, {});
    const auto reference = pair.torchs(theirs);
    const auto steps = [&](hogwild::Optimizer& one, Tensors& its, int from, int to) {
      for (int step = from; step < to; ++step) {
        set_gradients(its, theirs, step);
        one.step();
        reference->step();
      }
    };
    steps(*own, mine, 0, 5);
    // Copies, because libtorch's optimizer would go on with the shared memory.
    OptimizerState state;
    for (const at::Tensor& part : own->state()) state.push_back(part.clone());
    Tensors by_torch = leaves(mine, false);
    const auto taken = pair.torchs(by_torch);
    use_optimizer_state(*taken, state);
    const auto loaded = pair.own(anew, {});
    loaded->load_state(own->state());
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < anew.size(); ++i) anew[i].copy_(mine[i]);
    }
    for (int step = 5; step < 9; ++step) {
      set_gradients(by_torch, anew, step);
      taken->step();
      loaded->step();
    }
    steps(*own, mine, 5, 9);
    check_close(mine, theirs, 1e-12);
    check_close(by_torch, mine, 1e-12);
    check_close(anew, mine, 1e-12);
  }
}

TEST_CASE("hogwild optimizers: a loaded momentum goes on dampened, and one that had not begun begins undampened") {
  const hogwild::SGDOptions options{.lr = 0.1, .momentum = 0.9, .dampening = 0.5};
  Tensors first = leaves({torch::ones({3}), torch::ones({3})}, true);
  Tensors second = leaves({torch::ones({3}), torch::ones({3})}, true);
  Tensors theirs = leaves({torch::ones({3}), torch::ones({3})}, false);
  hogwild::SGD before(first, options), after(second, options);
  torch::optim::SGD reference(theirs, torch::optim::SGDOptions(0.1).momentum(0.9).dampening(0.5));
  // The one that loads has been further in both parameters; what it loads counts.
  for (at::Tensor& parameter : second) parameter.mutable_grad() = torch::full({3}, 7.0);
  after.step();
  for (Tensors* its : {&first, &theirs}) (*its)[0].mutable_grad() = torch::full({3}, 2.0);
  before.step();
  reference.step();
  after.load_state(before.state());
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < 2; ++i) second[i].copy_(first[i]);
  }
  for (int step = 0; step < 3; ++step) {
    for (Tensors* its : {&second, &theirs})
      for (at::Tensor& parameter : *its) parameter.mutable_grad() = torch::full({3}, 1.0 + step);
    after.step();
    reference.step();
  }
  check_close(second, theirs, 1e-6);
}

TEST_CASE("hogwild optimizers: a closure computes the loss, and zero_grad takes gradients away") {
  Tensors mine = leaves({torch::full({2}, 3.0)}, true);
  hogwild::SGD optimizer(mine, {.lr = 0.5});
  const at::Tensor loss = optimizer.step([&] {
    at::Tensor value = mine[0].pow(2).sum();
    value.backward();
    return value;
  });
  CHECK(loss.item<double>() == 18);
  CHECK(torch::equal(mine[0].detach(), torch::zeros({2})));
  optimizer.zero_grad(false);
  CHECK(torch::equal(mine[0].grad(), torch::zeros({2})));
  optimizer.zero_grad();
  CHECK_FALSE(mine[0].grad().defined());
}

TEST_CASE("hogwild optimizers: autograd sees that a parameter was changed") {
  Tensors mine = leaves({torch::ones({2})}, true);
  hogwild::SGD optimizer(mine, {.lr = 0.5});
  const at::Tensor loss = mine[0].pow(2).sum();
  mine[0].mutable_grad() = torch::ones({2});
  optimizer.step();
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("modified by an inplace operation"));
}

TEST_CASE("hogwild optimizers: lazily negated gradients, and zeros without memory, count as what they read as") {
  const at::Tensor numbers = torch::complex(torch::zeros({300, 2}), torch::ones({300, 2}));
  const at::Tensor part = at::imag(numbers.conj()).detach(), whole = torch::ones({300, 2})._neg_view();
  const at::Tensor zeros = at::_efficientzerotensor({300, 2}, at::TensorOptions(at::kFloat));
  REQUIRE((part.is_neg() && whole.is_neg() && zeros._is_zerotensor()));
  // By loops over what lies there, and by libtorch's kernels.
  for (const double dampening : {0.5, 0.0})
    for (const auto& [gradient, value] : {std::pair(part, 0.5), std::pair(whole, 0.5), std::pair(zeros, 0.0)}) {
      INFO("dampening " << dampening << ", " << (gradient.is_neg() ? "negated" : "without memory"));
      Tensors mine = leaves({torch::zeros({300, 2})}, true);
      hogwild::SGD optimizer(mine, {.lr = 0.5, .momentum = 0.9, .dampening = dampening});
      mine[0].mutable_grad() = gradient;
      optimizer.step();
      CHECK(mine[0].eq(value).all().item<bool>());
    }
}

TEST_CASE("hogwild optimizers: norms of half types' gradients are computed in float") {
  Tensors mine = leaves({torch::zeros({400}, at::kHalf)}, true);
  hogwild::SGD optimizer(mine, {.lr = 1}, {.clip_grad_norm = 20.0});
  mine[0].mutable_grad() = torch::full({400}, 4000, at::kHalf);  // of norm 80,000, which is no number of half
  optimizer.step();
  CHECK(torch::allclose(mine[0].detach().to(at::kFloat), torch::full({400}, -1.F), 1e-3, 0));
}

TEST_CASE("hogwild optimizers: what does not fit is refused") {
  const auto refuses = [](auto&& make, const std::string& why) { CHECK_THROWS_WITH(make(), ContainsSubstring(why)); };
  Tensors mine = leaves(make_parameters(at::kFloat), true);
  const auto one = [](const at::Tensor& tensor) { return Tensors{tensor}; };
  refuses([&] { hogwild::SGD(one(torch::ones({2}))); }, "parameter 0 is not in shared memory");
  refuses([&] { hogwild::SGD{Tensors()}; }, "no parameters");
  refuses([&] { hogwild::SGD(one(share_memory_(torch::ones({2}, at::kLong)))); }, "of type Long");
  refuses([&] { hogwild::SGD(one(share_memory_(torch::ones({4, 4})).slice(1, 0, 2))); }, "gaps");
  refuses([&] { hogwild::SGD(mine, {.lr = -1}); }, "learning rate of -1");
  refuses([&] { hogwild::SGD(mine, {.momentum = -1}); }, "momentum of -1");
  refuses([&] { hogwild::SGD(mine, {.nesterov = true}); },
          "nesterov with a momentum of 0 and a dampening of 0: it takes a momentum above 0");
  refuses([&] { hogwild::Adam(mine, {.betas = {1, 0.5}}); }, "first beta of 1");
  refuses([&] { hogwild::AdamW(mine, {.betas = {0.5, -1}}); }, "second beta of -1");
  refuses([&] { hogwild::Adagrad(mine, {.lr_decay = -1}); }, "lr_decay of -1");
  refuses([&] { hogwild::RMSprop(mine, {.alpha = -1}); }, "alpha of -1");
  refuses([&] { hogwild::SGD(mine, {}, {.stripe_bytes = 0}); }, "stripe_bytes is 0: give 1 to 2^62");
  refuses([&] { hogwild::SGD(mine, {}, {.stripe_bytes = std::size_t(-1)}); }, "stripe_bytes is 18446744073709551615");
  refuses([&] { hogwild::SGD(mine, {}, {.staleness_bound = -1}); }, "staleness_bound is -1: give a number of steps");
  refuses([&] { hogwild::SGD(mine, {}, {.timeout = std::chrono::nanoseconds(-5)}); }, "timeout is -5 ns: give 0 ns");
  refuses([&] { hogwild::SGD(mine, {}, {.clip_grad_value = -2.0}); }, "clip_grad_value is -2: give 0 or more");
  refuses([&] { hogwild::SGD(mine, {}, {.clip_grad_norm = -1.0}); }, "clip_grad_norm is -1: give 0 or more");
  refuses([&] { hogwild::SGD(mine, {}, {.clip_grad_norm_type = 0}); }, "clip_grad_norm_type is 0: give a number above");
  refuses([&] { hogwild::SGD(one(share_memory_(torch::ones({2}, at::kComplexFloat)))); }, "of type ComplexFloat");
  refuses([&] { hogwild::SGD(one(share_memory_(torch::ones({2}))._neg_view())); }, "is a lazily negated view");

  hogwild::SGD optimizer(mine, {.lr = 1});
  const at::Tensor before = mine[0].detach().clone();
  mine[0].mutable_grad() = torch::ones_like(mine[0]);
  mine[1].mutable_grad() = torch::sparse_coo_tensor(torch::tensor({{1}}), torch::ones({1}), {53});
  mine[2].mutable_grad() = torch::ones({8, 3, 5, 5}).to_sparse();
  refuses([&] { optimizer.step(); }, "parameter 2 is sparse in 4 dimensions");
  CHECK(torch::equal(mine[0].detach(), before));
  CHECK(optimizer.steps() == 0);
  refuses([&] { optimizer.attach(Tensors{mine[0]}); }, "1 parameters");
  Tensors others = leaves(make_parameters(at::kFloat), true);
  refuses([&] { optimizer.attach(others); }, "parameter 0 is not the optimizer's");
  refuses([&] { optimizer.load_state({torch::ones({1})}); }, "1 tensors");
  refuses([&] { optimizer.set_steps(-3); }, "set_steps(-3): give 0 or more");
}

}  // namespace hogwild_optimizer_test
