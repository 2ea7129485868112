// What a checkpoint is made of: all of it comes back, and what does not fit changes nothing.
#include <shoal/ipc/queue.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/read_only.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/checkpoint/checkpoint_parts.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/float_masters.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/checkpoint/nets.h"

using namespace shoal;
using namespace shoal::test;

namespace {

using MakeTestOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

std::vector<MakeTestOptimizer> optimizers() {
  using namespace torch::optim;
  return {
      [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.1)); },
      [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9).dampening(0.1)); },
      [](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01)); },
      [](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); },
      [](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01)); },
      [](auto p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.5).centered(true)); },
      [](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.05).initial_accumulator_value(0.1)); },
  };
}

struct History {
  std::string name;
  std::vector<double> losses;
  std::map<std::string, at::Tensor> averages;
  at::Tensor shared, view;
};

/// Saves with one list of parts and loads with another.
void save_and_load(const CheckpointParts& from, const CheckpointParts& to) {
  const TemporaryFolder folder;
  Checkpoints checkpoints({.folder = folder.path()});
  checkpoints.save(7, from);
  CHECK(checkpoints.load(to) == 7);
}

}  // namespace

TEST_CASE("checkpoint: after loading, training goes on bit for bit as without a break, with every optimizer") {
  int number = 0;
  for (const MakeTestOptimizer& make : optimizers()) {
    INFO("optimizer " << number++);
    torch::nn::Sequential net = small_net(1), other = small_net(2);
    auto optimizer = make(net->parameters()), another = make(other->parameters());
    for (int step = 0; step < 3; ++step) train_step(net, *optimizer, step);
    train_step(other, *another, 50);  // state that has to be replaced
    optimizer->param_groups()[0].options().set_lr(0.007);
    CheckpointParts parts, others;
    parts.add("model", net);
    parts.add("optimizer", *optimizer, *net);
    others.add("model", other);
    others.add("optimizer", *another, *other);
    save_and_load(parts, others);
    CHECK(same_values(*net, *other));
    CHECK(another->param_groups()[0].options().get_lr() == 0.007);
    for (int step = 3; step < 6; ++step) {
      train_step(net, *optimizer, step);
      train_step(other, *another, step);
    }
    CHECK(same_values(*net, *other));
  }
}

TEST_CASE("checkpoint: an optimizer before its first step has no state, and loading takes away what there was") {
  torch::nn::Sequential net = small_net(1);
  torch::optim::Adam fresh(net->parameters(), torch::optim::AdamOptions(0.1));
  torch::optim::Adam used(net->parameters(), torch::optim::AdamOptions(0.2));
  train_step(net, used, 0);
  CHECK_FALSE(used.state().empty());
  CheckpointParts from, to;
  from.add("optimizer", fresh);
  to.add("optimizer", used);
  save_and_load(from, to);
  CHECK(used.state().empty());
  CHECK(fresh.state().empty());  // looking made none
  CHECK(used.param_groups()[0].options().get_lr() == 0.1);
}

namespace {

void lbfgs_step(torch::nn::Sequential& net, torch::optim::LBFGS& optimizer) {
  const at::Tensor input = torch::ones({4, 6});
  net->eval();
  optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor loss = net->forward(input).pow(2).mean();
    loss.backward();
    return loss;
  });
}

}  // namespace

TEST_CASE("checkpoint: LBFGS goes as libtorch writes it") {
  torch::nn::Sequential net = small_net(1), other = small_net(2);
  const auto options = torch::optim::LBFGSOptions(0.1).max_iter(3);
  torch::optim::LBFGS optimizer(net->parameters(), options), another(other->parameters(), options);
  lbfgs_step(net, optimizer);
  CheckpointParts from, to;
  from.add("model", net);
  from.add("optimizer", optimizer);
  to.add("model", other);
  to.add("optimizer", another);
  save_and_load(from, to);
  lbfgs_step(net, optimizer);
  lbfgs_step(other, another);
  CHECK(same_values(*net, *other));
}

TEST_CASE("checkpoint: a module's tied, non-contiguous, empty and bfloat16 tensors come back into the same memory") {
  struct NetImpl : torch::nn::Module {
    explicit NetImpl(double value) {
      a = register_parameter("a", torch::full({3, 5}, value).t());
      tied = register_parameter("tied", a);
      half = register_buffer("half", torch::full({7}, value, at::kBFloat16));
      none = register_buffer("none", torch::zeros({0, 4}));
      flag = register_buffer("flag", torch::tensor(value > 1));
      complex = register_buffer("complex", torch::complex(torch::ones({2}) * value, torch::ones({2})).conj());
    }
    at::Tensor a, tied, half, none, flag, complex;
  };
  auto net = std::make_shared<NetImpl>(2.5), other = std::make_shared<NetImpl>(1.0);
  const void* before = other->a.const_data_ptr();
  CheckpointParts from, to;
  from.add("model", *net);
  to.add("model", *other);
  save_and_load(from, to);
  CHECK(other->a.const_data_ptr() == before);
  CHECK(other->tied.is_same(other->a));
  CHECK(torch::equal(other->a, net->a));
  CHECK(torch::equal(other->half, net->half));
  CHECK(other->flag.item<bool>());
  CHECK(torch::equal(other->complex, net->complex));
}

TEST_CASE("checkpoint: any encodable value comes back, with tensors that share what they shared") {
  History history{"run", {0.5, 0.25}, {{"ema", torch::arange(10)}}, torch::rand({1000}), {}};
  history.view = history.shared.slice(0, 100, 300);
  auto published = std::make_unique<at::Tensor>(torch::rand({33}));
  read_only(*published);
  int epoch = 12;
  CheckpointParts from;
  from.add("history", history);
  from.add("epoch", epoch);
  from.add("published", published);

  History loaded;
  int loaded_epoch = 0;
  std::unique_ptr<at::Tensor> loaded_tensor;
  CheckpointParts to;
  to.add("history", loaded);
  to.add("epoch", [&]() -> int { return loaded_epoch; }, [&](int value) { loaded_epoch = value; });
  to.add("published", loaded_tensor);
  save_and_load(from, to);
  CHECK(loaded.name == "run");
  CHECK(loaded.losses == history.losses);
  CHECK(torch::equal(loaded.averages.at("ema"), torch::arange(10)));
  CHECK(torch::equal(loaded.shared, history.shared));
  CHECK(torch::equal(loaded.view, history.view));
  loaded.shared.fill_(3);
  CHECK((loaded.view == 3).all().item<bool>());
  CHECK(loaded_epoch == 12);
  REQUIRE(loaded_tensor);
  CHECK(torch::equal(*loaded_tensor, *published));
}

TEST_CASE("checkpoint: handles of queues and the like are refused, by the part's name") {
  Queue<int> queue(4);
  CheckpointParts parts;
  parts.add("jobs", queue);
  const TemporaryFolder folder;
  Checkpoints checkpoints({.folder = folder.path()});
  try {
    checkpoints.save(1, parts);
    FAIL("it was saved");
  } catch (const std::invalid_argument& error) {
    CHECK_THAT(error.what(), ContainsSubstring("'jobs'") && ContainsSubstring("end with their session"));
  }
  CHECK(checkpoints.steps().empty());
}

TEST_CASE("checkpoint: a loader goes on with the samples that were not seen, random numbers with those that follow") {
  const auto data = tensor_dataset(torch::arange(40));
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 3};
  DataLoader loader(options, data), another(options, data);
  std::vector<at::Tensor> expected, got;
  CheckpointParts from, to;
  from.add("loader", loader);
  from.add_random_state("random");
  to.add("loader", another);
  to.add_random_state("random");
  at::Tensor numbers;
  int count = 0;
  torch::manual_seed(77);
  const TemporaryFolder folder;
  Checkpoints checkpoints({.folder = folder.path()});
  for (auto& [batch] : loader) {
    if (++count == 3) {
      (void)torch::rand({5});
      checkpoints.save(3, from);
      numbers = torch::randn({9});
    }
    if (count > 3) expected.push_back(batch.clone());
  }
  torch::manual_seed(1);
  CHECK(checkpoints.load(to) == 3);
  CHECK(torch::equal(torch::randn({9}), numbers));
  for (auto& [batch] : another) got.push_back(batch.clone());
  REQUIRE(got.size() == expected.size());
  CHECK(got.size() == 7);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(torch::equal(got[i], expected[i]));
}

TEST_CASE("checkpoint: what does not fit is a CheckpointError that names it, and nothing is changed") {
  const TemporaryFolder folder;
  Checkpoints checkpoints({.folder = folder.path()});
  torch::nn::Sequential net = small_net(1);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.01));
  train_step(net, adam, 0);
  int count = 5;
  CheckpointParts saved;
  saved.add("count", count);
  saved.add("model", net);
  saved.add("optimizer", adam, *net);
  checkpoints.save(1, saved);

  const auto refused = [&](const std::function<void(CheckpointParts&)>& more, const std::string& field,
                           const std::string& what) {
    int own = 9;
    torch::nn::Sequential before = small_net(4), own_net = small_net(4);
    CheckpointParts parts;
    parts.add("count", own);
    parts.add("model", own_net);
    more(parts);
    try {
      checkpoints.load(parts);
      FAIL("it was loaded: " << field);
    } catch (const CheckpointError& error) {
      CHECK_THAT(error.field(), ContainsSubstring(field));
      CHECK_THAT(error.what(), ContainsSubstring(what) && ContainsSubstring(folder.path()));
    }
    CHECK(own == 9);
    CHECK(same_values(*own_net, *before));
  };
  int other_value = 0;
  refused([&](CheckpointParts& parts) { parts.add("missing", other_value); }, "missing",
          "no shard of this step has it. The parts that were saved are 'count', 'model', 'optimizer'");
  struct Other {
    int count;
    double more;
  };
  {
    Other other{};
    CheckpointParts parts;
    parts.add("count", other);
    CHECK_THROWS_WITH(checkpoints.load(parts), ContainsSubstring("the type has changed") && ContainsSubstring("int"));
  }
  {
    torch::nn::Sequential wider(torch::nn::Linear(6, 31), torch::nn::BatchNorm1d(31), torch::nn::ReLU(),
                                torch::nn::Linear(31, 4));
    CheckpointParts parts;
    parts.add("model", wider);
    CHECK_THROWS_WITH(checkpoints.load(parts), ContainsSubstring("[30, 6] float32 there, and [31, 6] float32"));
  }
  {
    torch::nn::Sequential shorter(torch::nn::Linear(6, 30));
    CheckpointParts parts;
    parts.add("model", shorter);
    CHECK_THROWS_WITH(checkpoints.load(parts), ContainsSubstring("module does not have it"));
  }
  torch::nn::Sequential third = small_net(5);
  torch::optim::SGD sgd(third->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  refused([&](CheckpointParts& parts) { parts.add("optimizer", sgd, *third); }, "optimizer",
          "the state of Adam or AdamW, and this program's optimizer is torch::optim::SGD: make the one that was saved");
  torch::optim::LBFGS lbfgs(third->parameters());
  refused([&](CheckpointParts& parts) { parts.add("optimizer", lbfgs, *third); }, "optimizer",
          "the state of Adam or AdamW, and this program's optimizer is torch::optim::LBFGS");
  torch::optim::Adam groups(std::vector<torch::optim::OptimizerParamGroup>(2, third->parameters()));
  refused([&](CheckpointParts& parts) { parts.add("optimizer", groups, *third); }, "optimizer",
          "there are 1 groups of parameters there, and 2 in this program's optimizer");
  torch::optim::Adam amsgrad(third->parameters(), torch::optim::AdamOptions(0.1).amsgrad(true));
  refused([&](CheckpointParts& parts) { parts.add("optimizer", amsgrad, *third); }, "max_exp_avg_sq", "no shard");
  CHECK(amsgrad.state().empty());
  CHECK_THROWS_AS(CheckpointParts().add("optimizer", adam, *third), std::invalid_argument);
  CHECK_THROWS_AS(CheckpointParts().add("a/b", count), std::invalid_argument);
  CHECK_THROWS_AS(saved.add("count", other_value), std::invalid_argument);
}

TEST_CASE("checkpoint: what only a part itself finds not to fit changes nothing either, wherever it stands") {
  const TemporaryFolder folder;
  Checkpoints checkpoints({.folder = folder.path()});
  torch::nn::Sequential net = small_net(1);
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(3));
  lbfgs_step(net, lbfgs);
  DataLoader loader({.batch_size = 4, .seed = 3}, tensor_dataset(torch::arange(40)));
  int rate = 5;
  {
    CheckpointParts parts;
    parts.add("rate", rate);
    parts.add("model", net);
    parts.add("lbfgs", lbfgs);
    parts.add("loader", loader);
    auto at = loader.begin();
    ++at;
    checkpoints.save(1, parts);
  }

  // The same training twice: one is to stay as the other.
  torch::nn::Sequential own = small_net(2), twin = small_net(2);
  const auto options = torch::optim::LBFGSOptions(0.3).max_iter(2);
  torch::optim::LBFGS own_lbfgs(own->parameters(), options), twin_lbfgs(twin->parameters(), options);
  lbfgs_step(own, own_lbfgs);
  lbfgs_step(twin, twin_lbfgs);
  torch::optim::LBFGS shorter({own->parameters()[0], own->parameters()[1]}, options);
  DataLoader own_loader({.batch_size = 4, .seed = 3}, tensor_dataset(torch::arange(40)));
  DataLoader longer({.batch_size = 4, .seed = 3}, tensor_dataset(torch::arange(41)));
  DataLoader shuffled({.batch_size = 4, .shuffle = true, .seed = 3}, tensor_dataset(torch::arange(40)));
  int own_rate = 9;
  const auto refused = [&](const std::function<void(CheckpointParts&)>& misfit, const std::string& field,
                           const std::string& what) {
    for (const bool first : {true, false}) {
      CheckpointParts parts;
      if (first) misfit(parts);
      parts.add("model", own);
      if (field != "lbfgs") parts.add("lbfgs", own_lbfgs);
      if (field != "loader") parts.add("loader", own_loader);
      if (field != "rate") parts.add("rate", own_rate);
      if (!first) misfit(parts);
      try {
        checkpoints.load(parts);
        FAIL("it was loaded: " << field);
      } catch (const CheckpointError& error) {
        CHECK_THAT(error.field(), ContainsSubstring(field));
        CHECK_THAT(error.what(), ContainsSubstring(what));
      }
      CHECK(own_rate == 9);
      CHECK(same_values(*own, *twin));
      CHECK(own_loader.state_dict().place == 0);
      CHECK(own_lbfgs.param_groups()[0].options().get_lr() == 0.3);
    }
  };
  refused([&](CheckpointParts& parts) { parts.add("loader", longer); }, "loader", "40 samples, this one has 41");
  refused([&](CheckpointParts& parts) { parts.add("loader", shuffled); }, "loader", "whose order is");
  refused([&](CheckpointParts& parts) { parts.add("lbfgs", shorter); }, "lbfgs", "different size");
  torch::optim::RMSprop rmsprop(own->parameters());
  refused([&](CheckpointParts& parts) { parts.add("lbfgs", rmsprop); }, "lbfgs",
          "saves as a whole (LBFGS, or a class of your own), and this program's optimizer is torch::optim::RMSprop");
  refused(
      [&](CheckpointParts& parts) {
        parts.add(
            "rate", [&] { return own_rate; }, [&](int value) { own_rate = value; },
            [](int value) {
              if (value > 4) throw std::out_of_range("a rate above 4");
            });
      },
      "rate", "a rate above 4");
  CHECK(shorter.state().empty());
  lbfgs_step(own, own_lbfgs);
  lbfgs_step(twin, twin_lbfgs);
  CHECK(same_values(*own, *twin));
  CheckpointParts all;
  all.add("model", own);
  all.add("lbfgs", own_lbfgs);
  all.add("loader", own_loader);
  all.add("rate", own_rate);
  CHECK(checkpoints.load(all) == 1);
  CHECK(own_rate == 5);
  CHECK(own_loader.state_dict().place == 8);
  lbfgs_step(own, own_lbfgs);
  lbfgs_step(net, lbfgs);
  CHECK(same_values(*own, *net));
}

TEST_CASE("checkpoint: float masters come back with all their digits, and their optimizer under the module's names") {
  const auto make = [](int seed) {
    torch::nn::Sequential net = small_net(seed);
    net->to(at::kBFloat16);
    return net;
  };
  struct Training {
    explicit Training(torch::nn::Sequential given)
        : net(std::move(given)), masters(net->parameters()), optimizer(masters.parameters(), 1e-4) {
      parts.add("model", net);
      parts.add("masters", masters, *net);
      parts.add("optimizer", optimizer, masters, *net);
    }
    void step(int number) {
      torch::manual_seed(500 + number);
      net->zero_grad();
      net->forward(torch::randn({8, 6}).to(at::kBFloat16)).pow(2).mean().backward();
      masters.take_gradients();
      optimizer.step();
      masters.give_parameters();
    }
    torch::nn::Sequential net;
    FloatMasters masters;
    torch::optim::Adam optimizer;
    CheckpointParts parts;
  };
  Training unbroken(make(1)), loaded(make(2));
  for (int step = 0; step < 3; ++step) unbroken.step(step);
  save_and_load(unbroken.parts, loaded.parts);
  for (int step = 3; step < 6; ++step) {
    unbroken.step(step);
    loaded.step(step);
  }
  CHECK(same_values(*loaded.net, *unbroken.net));
  for (std::size_t i = 0; i < loaded.masters.parameters().size(); ++i)
    CHECK(torch::equal(loaded.masters.parameters()[i], unbroken.masters.parameters()[i]));
  // Weights from elsewhere.
  {
    const torch::NoGradGuard no_grad;
    loaded.net->parameters()[0].fill_(3);
  }
  loaded.masters.take_parameters();
  loaded.masters.give_parameters();
  CHECK(loaded.net->parameters()[0].eq(3).all().item<bool>());
}

TEST_CASE("checkpoint: what a communication hook has left out comes back, and another module's changes nothing") {
  const torch::nn::Linear net(4, 3), other(5, 3);
  const CommHookState state{.left_out = {torch::randn({12}), {}}, .factors = {torch::randn({4, 1}), {}}};
  StatefulCommHook saved = power_sgd_hook(nullptr);
  const StatefulCommHook loaded = power_sgd_hook(nullptr), unfit = power_sgd_hook(nullptr);
  saved.load_state_dict(state, net->parameters());
  CheckpointParts from, to, to_other;
  from.add("hook", saved, *net);
  to.add("hook", loaded, *net);
  to_other.add("hook", unfit, *other);
  save_and_load(from, to);
  const CommHookState got = loaded.state_dict(net->parameters());
  CHECK(torch::equal(got.left_out[0], state.left_out[0]));
  CHECK(torch::equal(got.factors[0], state.factors[0]));
  CHECK_FALSE(got.left_out[1].defined());
  const TemporaryFolder folder;
  Checkpoints checkpoints({.folder = folder.path()});
  checkpoints.save(1, from);
  CHECK_THROWS_WITH(checkpoints.load(to_other), ContainsSubstring("'hook'") && ContainsSubstring("[3, 5]"));
  CHECK_FALSE(unfit.state_dict(other->parameters()).left_out[0].defined());
}

TEST_CASE("checkpoint: an expanded buffer is refused by name, before anything is written or changed") {
  struct NetImpl : torch::nn::Module {
    NetImpl(double value, bool expanded) {
      first = register_parameter("first", torch::full({2}, value));
      mask = register_buffer("mask", torch::full({1, 3}, value).expand({4, 3}));
      if (!expanded) mask.set_data(mask.clone());
      empty = register_buffer("empty", torch::zeros({1, 0}).expand({4, 0}));  // nothing of it lies anywhere twice
    }
    at::Tensor first, mask, empty;
  };
  NetImpl expanded(1, true), dense(2, false);
  CheckpointParts parts, dense_parts;
  parts.add("model", expanded);
  dense_parts.add("model", dense);
  const TemporaryFolder folder;
  Checkpoints checkpoints({.folder = folder.path()});
  CHECK_THROWS_WITH(checkpoints.save(1, parts), ContainsSubstring("'model/mask'") &&
                                                    ContainsSubstring("expanded tensor, [4, 3] with strides [0, 1]"));
  CHECK(checkpoints.steps().empty());
  checkpoints.save(1, dense_parts);
  CHECK_THROWS_WITH(checkpoints.load(parts), ContainsSubstring("'model/mask'") && ContainsSubstring("expanded"));
  CHECK(expanded.first.eq(1).all().item<bool>());
}

TEST_CASE("checkpoint: what ranks' hooks have left out in half types is added up and divided in float") {
  const torch::nn::Linear net(2, 1);
  struct Case {
    at::ScalarType type;
    double zero, one, mean;
  };
  // Half's largest number is 65504; bfloat16 has 8 bits.
  for (const Case& each : {Case{at::kHalf, 60000, 50016, 55008}, Case{at::kBFloat16, 256, 1, 128.5}}) {
    const TemporaryFolder folder;
    for (const int rank : {0, 1}) {
      StatefulCommHook hook = power_sgd_hook(nullptr);
      const auto value = at::TensorOptions(each.type);
      hook.load_state_dict({.left_out = {torch::full({2}, rank == 0 ? each.zero : each.one, value), {}},
                            .factors = std::vector<at::Tensor>(2)},
                           net->parameters());
      CheckpointParts parts;
      parts.add("hook", hook, *net);
      Checkpoints({.folder = folder.path(), .rank = rank, .ranks = 2, .run_id = "run"}).save(1, parts);
    }
    StatefulCommHook alone = power_sgd_hook(nullptr);
    CheckpointParts parts;
    parts.add("hook", alone, *net);
    CHECK(Checkpoints({.folder = folder.path()}).load(parts) == 1);
    const at::Tensor got = alone.state_dict(net->parameters()).left_out[0];
    CHECK(torch::equal(got.to(at::kDouble), torch::full({2}, each.mean, at::kDouble)));
  }
}
