// DataParallel beside the module alone.
#include <shoal/workers/train/data_parallel.h>

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/heap.h>
#include <shoal/runtime/failure.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace data_parallel_test {

namespace {

struct MlpImpl : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 20))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(20, 3))};
  torch::nn::Linear unused{register_module("unused", torch::nn::Linear(2, 2))};
  MlpImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& input) {
    if (input.size(1) != 6) throw std::invalid_argument(fmt::format("{} features", input.size(1)));
    return last->forward(torch::tanh(first->forward(input)));
  }
};
TORCH_MODULE(Mlp);

template <class Net>
Net make() {
  torch::manual_seed(0);
  return Net();
}

at::Tensor batch(int step, std::int64_t samples) {
  torch::manual_seed(100 + step);
  return torch::randn({samples, 6}, at::kDouble);
}

template <class Net>
void copy_values(const Net& from, Net& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from->parameters().size(); ++i) to->parameters()[i].copy_(from->parameters()[i]);
}

template <class Net>
void check_close(const Net& own, const Net& reference, double tolerance) {
  for (const auto& item : reference->named_parameters()) {
    INFO(item.key());
    CHECK(torch::allclose(own->named_parameters()[item.key()], item.value(), tolerance, tolerance));
  }
}

}  // namespace

TEST_CASE("data parallel: a loop over workers trains as the module alone does") {
  for (const int processes : {1, 2, 3})
    for (const std::int64_t samples : {12, 7, 2, 1}) {
      INFO(processes << " workers, " << samples << " samples");
      Mlp net = make<Mlp>(), alone = make<Mlp>();
      DataParallel<Mlp> parallel(net, {.processes = processes});
      CHECK(int(parallel.pids().size()) == processes);
      torch::optim::Adam own(net->parameters(), 0.01), reference(alone->parameters(), 0.01);
      for (int step = 0; step < 10; ++step) {
        const at::Tensor input = batch(step, samples);
        own.zero_grad();
        reference.zero_grad();
        const at::Tensor output = parallel(input), expected = alone->forward(input);
        REQUIRE(output.sizes() == expected.sizes());
        CHECK(torch::allclose(output, expected, 1e-12, 1e-12));
        output.pow(2).mean().backward();
        expected.pow(2).mean().backward();
        CHECK_FALSE(net->unused->weight.grad().defined());
        own.step();
        reference.step();
      }
      check_close(net, alone, 1e-10);
    }
}

TEST_CASE("data parallel: gradients of several backward passes add up, as they do without it") {
  Mlp net = make<Mlp>(), alone = make<Mlp>();
  DataParallel<Mlp> parallel(net, {.processes = 2});
  // Two passes before the first way back, of which the second is gone through first.
  const at::Tensor one = parallel(batch(0, 6)).sum(), two = parallel(batch(1, 5)).pow(2).sum();
  two.backward();
  one.backward({}, /*retain_graph=*/true);
  one.backward();
  CHECK_THROWS_WITH(one.backward(), ContainsSubstring("second"));
  alone->forward(batch(1, 5)).pow(2).sum().backward();
  const at::Tensor expected = alone->forward(batch(0, 6)).sum();
  expected.backward({}, true);
  expected.backward();
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(torch::allclose(net->parameters()[i].grad(), alone->parameters()[i].grad(), 1e-12, 1e-12));
}

TEST_CASE("data parallel: inputs get gradients, and frozen parameters none") {
  Mlp net = make<Mlp>(), alone = make<Mlp>();
  DataParallel<Mlp> parallel(net, {.processes = 2});
  for (Mlp* one : {&net, &alone}) (*one)->first->weight.set_requires_grad(false);
  at::Tensor input = batch(0, 5).set_requires_grad(true), same = batch(0, 5).set_requires_grad(true);
  parallel(input).pow(2).sum().backward();
  alone->forward(same).pow(2).sum().backward();
  CHECK(torch::allclose(input.grad(), same.grad(), 1e-12, 1e-12));
  CHECK_FALSE(net->first->weight.grad().defined());
  CHECK(torch::allclose(net->last->weight.grad(), alone->last->weight.grad(), 1e-12, 1e-12));
}

TEST_CASE("data parallel: the parameters are this process's memory, and nothing keeps batches") {
  Mlp net = make<Mlp>();
  DataParallel<Mlp> parallel(net, {.processes = 2});
  const torch::NoGradGuard no_grad;
  net->last->weight.zero_();
  net->last->bias.fill_(4);
  const at::Tensor output = parallel(batch(0, 6));
  CHECK(torch::equal(output, torch::full({6, 3}, 4.0, at::kDouble)));
  CHECK_FALSE(output.requires_grad());
  const std::size_t before = heap_bytes_in_use();
  for (int step = 0; step < 5; ++step) parallel(batch(step, 6));
  CHECK(heap_bytes_in_use() <= before + 4096);
}

namespace {

struct DroppedImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 40))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  at::Tensor forward(const at::Tensor& input) { return dropout->forward(layer->forward(input)); }
};
TORCH_MODULE(Dropped);

std::vector<at::Tensor> train_dropped(int processes) {
  Dropped net;
  {
    torch::manual_seed(0);
    Dropped values;
    copy_values(values, net);
  }
  DataParallel<Dropped> parallel(net, {.processes = processes});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::manual_seed(7);
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    parallel(torch::randn({11, 6})).pow(2).mean().backward();
    optimizer.step();
  }
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : net->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

}  // namespace

TEST_CASE("data parallel: with the same seed and workers each run gives the same bits, random numbers included") {
  const auto first = train_dropped(3), second = train_dropped(3);
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(torch::equal(first[i], second[i]));
}

TEST_CASE("data parallel: workers draw different random numbers, and none where nobody trains") {
  Dropped net;
  DataParallel<Dropped> parallel(net, {.processes = 2});
  const torch::NoGradGuard no_grad;
  const at::Tensor same = torch::ones({1, 6}).repeat({2, 1});
  const at::Tensor output = parallel(same);
  CHECK_FALSE(torch::equal(output[0], output[1]));
  net->eval();
  torch::manual_seed(3);
  // Parts are multiplied by other kernels than the whole batch, and numbers near zero have fewer digits.
  CHECK(torch::allclose(parallel(same), net->forward(same), 1e-5, 1e-6));
  const at::Tensor drawn = torch::rand({1});
  torch::manual_seed(3);
  CHECK(torch::equal(torch::rand({1}), drawn));
}

namespace {

struct NormedImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 4))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(4))};
  NormedImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& input) { return norm->forward(layer->forward(input)); }
};
TORCH_MODULE(Normed);

}  // namespace

TEST_CASE("data parallel: buffers are those of worker 0, and evaluation uses them everywhere") {
  Normed net = make<Normed>(), alone = make<Normed>();
  DataParallel<Normed> parallel(net, {.processes = 2});
  for (int step = 0; step < 5; ++step) {
    const at::Tensor input = batch(step, 8);
    const at::Tensor output = parallel(input);
    // The statistics of its own half normalize each half.
    CHECK(torch::allclose(output.slice(0, 4), alone->forward(input.slice(0, 4)), 1e-10, 1e-10));
  }
  Normed half = make<Normed>();
  for (int step = 0; step < 5; ++step) half->forward(batch(step, 8).slice(0, 0, 4));
  CHECK(torch::allclose(net->norm->running_mean, half->norm->running_mean, 1e-12, 1e-12));
  CHECK(torch::allclose(net->norm->running_var, half->norm->running_var, 1e-12, 1e-12));
  CHECK(net->norm->num_batches_tracked.item<std::int64_t>() == 5);
  net->eval();
  half->eval();
  CHECK(torch::allclose(parallel(batch(9, 10)), half->forward(batch(9, 10)), 1e-12, 1e-12));
}

namespace {

struct ScaledImpl : torch::nn::Module {
  at::Tensor scale{register_buffer("scale", torch::linspace(1, 2, 6, at::kDouble))};
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 4))};
  ScaledImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& input) { return layer->forward(input * scale).tanh(); }
};
TORCH_MODULE(Scaled);

}  // namespace

TEST_CASE("data parallel: a buffer that requires a gradient gets it") {
  for (const bool trains : {true, false}) {
    INFO((trains ? "training" : "evaluation"));
    Scaled net = make<Scaled>(), alone = make<Scaled>();
    for (Scaled* one : {&net, &alone}) {
      (*one)->train(trains);
      (*one)->scale.set_requires_grad(true);
      for (at::Tensor& parameter : (*one)->layer->parameters()) parameter.set_requires_grad(false);
    }
    DataParallel<Scaled> parallel(net, {.processes = 2});
    for (int step = 0; step < 3; ++step) {
      // The buffer alone makes a graph; two passes are under way at once.
      const at::Tensor one = parallel(batch(step, 5)), two = parallel(batch(step + 9, 5));
      REQUIRE(one.requires_grad());
      for (const at::Tensor& output : {one, two}) output.pow(2).sum().backward();
      for (const int seed : {step, step + 9}) alone->forward(batch(seed, 5)).pow(2).sum().backward();
      REQUIRE(net->scale.grad().defined());
      CHECK(torch::allclose(net->scale.grad(), alone->scale.grad(), 1e-12, 1e-12));
      CHECK_FALSE(net->layer->weight.grad().defined());
      const torch::NoGradGuard no_grad;
      for (Scaled* each : {&net, &alone}) (*each)->scale.sub_(0.01 * (*each)->scale.grad());
    }
    net->scale.set_requires_grad(false);
    CHECK_FALSE(parallel(batch(0, 5)).requires_grad());
  }
}

namespace {

struct SeveralImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 6))};
  SeveralImpl() { to(at::kDouble); }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& a, const at::Tensor& b, const at::Tensor& factor) {
    const at::Tensor hidden = layer->forward(a + b) * factor;
    return {hidden, hidden.sum()};
  }
};
TORCH_MODULE(Several);

}  // namespace

TEST_CASE("data parallel: several inputs and outputs, numbers for all workers, and one loss a part") {
  Several net = make<Several>(), alone = make<Several>();
  DataParallel<Several> parallel(net, {.processes = 3});
  at::Tensor factor = torch::tensor(2.0, at::kDouble).set_requires_grad(true);
  at::Tensor same = torch::tensor(2.0, at::kDouble).set_requires_grad(true);
  auto [hidden, losses] = parallel(batch(0, 7), batch(1, 7), factor);
  auto [expected, loss] = alone->forward(batch(0, 7), batch(1, 7), same);
  CHECK(torch::allclose(hidden, expected, 1e-12, 1e-12));
  REQUIRE(losses.numel() == 3);
  CHECK(torch::allclose(losses.sum(), loss, 1e-12, 1e-12));
  (losses.sum() + hidden.pow(2).sum()).backward();
  (loss + expected.pow(2).sum()).backward();
  CHECK(torch::allclose(net->layer->weight.grad(), alone->layer->weight.grad(), 1e-12, 1e-12));
  CHECK(torch::allclose(factor.grad(), same.grad(), 1e-12, 1e-12));
  CHECK_THROWS_WITH(parallel(batch(0, 7), batch(1, 6), factor), ContainsSubstring("inputs of 7 and of 6"));
  CHECK_THROWS_WITH(parallel(factor, factor, factor), ContainsSubstring("no input has a dimension"));
}

namespace {

struct WordsImpl : torch::nn::Module {
  torch::nn::Embedding table{
      register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 4).sparse(true)))};
  at::Tensor forward(const at::Tensor& words) { return table->forward(words); }
};
TORCH_MODULE(Words);

/// Ends in its worker, or not, by what the input says.
struct DoomedImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 1))};
  DoomedImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& input) {
    if (input[0][0].item<double>() == 666) std::raise(SIGKILL);
    return layer->forward(input);
  }
};
TORCH_MODULE(Doomed);

}  // namespace

TEST_CASE("data parallel: sparse gradients add up") {
  Words net;
  Words alone;
  copy_values(net, alone);
  DataParallel<Words> parallel(net, {.processes = 2});
  const at::Tensor words = torch::tensor({1, 5, 5, 7, 1, 19}, at::kLong);
  parallel(words).pow(2).sum().backward();
  alone->forward(words).pow(2).sum().backward();
  REQUIRE(net->table->weight.grad().is_sparse());
  CHECK(torch::allclose(net->table->weight.grad().to_dense(), alone->table->weight.grad().to_dense(), 1e-6, 1e-6));
}

TEST_CASE("data parallel: what a worker throws comes out, and the workers go on") {
  Mlp net = make<Mlp>();
  DataParallel<Mlp> parallel(net, {.processes = 2});
  const auto pids = parallel.pids();
  CHECK_THROWS_AS(parallel(torch::ones({4, 5}, at::kDouble)), ProcessRaised);
  CHECK_THROWS_WITH(parallel(torch::ones({4, 5}, at::kDouble)),
                    ContainsSubstring("5 features") && ContainsSubstring("data parallel 0"));
  CHECK(parallel(batch(0, 4)).size(0) == 4);
  CHECK(parallel.pids() == pids);
}

TEST_CASE("data parallel: a worker's death is an error that names it, in that call and in all later ones") {
  Doomed net = make<Doomed>();
  DataParallel<Doomed> parallel(net, {.processes = 2});
  at::Tensor input = batch(0, 4);
  CHECK(parallel(input).size(0) == 4);
  input[2][0] = 666;  // in the second worker's part
  for (int call = 0; call < 2; ++call)
    CHECK_THROWS_WITH(parallel(input), ContainsSubstring("data parallel 1") && ContainsSubstring("SIGKILL") &&
                                           ContainsSubstring("this DataParallel computes no more: make a new one"));
  CHECK_THROWS_AS(parallel(batch(0, 4)), ProcessExited);
}

TEST_CASE("data parallel: a worker that is killed before a backward pass is named there") {
  Mlp net = make<Mlp>();
  DataParallel<Mlp> parallel(net, {.processes = 2});
  const at::Tensor loss = parallel(batch(0, 4)).sum();
  ::kill(parallel.pids()[0], SIGKILL);
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("data parallel 0"));
  CHECK_THROWS_AS(parallel(batch(0, 4)), ProcessExited);
}

namespace {

/// A part whose first number is above 0 uses both inputs, others one.
struct ChoosyImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 6))};
  ChoosyImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor hidden = layer->forward(a);
    return a[0][0].item<double>() > 0 ? hidden * b : hidden;
  }
};
TORCH_MODULE(Choosy);

}  // namespace

TEST_CASE(
    "data parallel: where a part does not use an input its gradient is zero there, and where none does it is none") {
  Choosy net = make<Choosy>();
  for (const std::int64_t dim : {0, -2}) {
    DataParallel<Choosy> parallel(net, {.processes = 3, .dim = dim});
    at::Tensor a = batch(0, 7).abs().set_requires_grad(true), b = batch(1, 7).set_requires_grad(true);
    {
      const torch::NoGradGuard no_grad;
      a[3][0] = -1;  // the second part's first
    }
    parallel(a, b).sum().backward();
    REQUIRE(b.grad().defined());
    const at::Tensor expected = net->layer->forward(a).detach();
    CHECK(torch::allclose(b.grad().slice(0, 0, 3), expected.slice(0, 0, 3), 1e-12, 1e-12));
    CHECK(b.grad().slice(0, 3, 6).eq(0).all().item<bool>());
    CHECK(torch::allclose(b.grad().slice(0, 6), expected.slice(0, 6), 1e-12, 1e-12));
    at::Tensor unused = batch(1, 7).set_requires_grad(true);
    parallel(-a.detach().abs(), unused).sum().backward();
    CHECK_FALSE(unused.grad().defined());
  }
}

namespace {

/// As torch.autocast does it.
class AutocastScope {
 public:
  explicit AutocastScope(at::ScalarType type) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  AutocastScope(const AutocastScope&) = delete;
  ~AutocastScope() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);  // libtorch's own
  }
};

struct FloatMlpImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 3))};
  at::Tensor forward(const at::Tensor& input) { return layer->forward(input); }
};
TORCH_MODULE(FloatMlp);

}  // namespace

TEST_CASE("data parallel: workers cast as the calling thread does, with the parameters of that pass") {
  FloatMlp net = make<FloatMlp>();
  DataParallel<FloatMlp> parallel(net, {.processes = 2});
  const at::Tensor input = batch(0, 4).to(at::kFloat);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    {
      const AutocastScope scope(type);
      at::Tensor output = parallel(input);
      CHECK(output.scalar_type() == type);
      CHECK(torch::allclose(output, net->forward(input), 1e-2, 1e-2));
      output.sum().backward();
    }
    CHECK(net->layer->weight.grad().scalar_type() == at::kFloat);
    const torch::NoGradGuard no_grad;
    net->layer->weight.fill_(2);
    net->layer->bias.zero_();
    {
      const AutocastScope scope(type);
      CHECK(torch::allclose(parallel(torch::ones({4, 6})).to(at::kFloat), torch::full({4, 3}, 12.F)));
    }
    CHECK(parallel(input).scalar_type() == at::kFloat);
    net->layer->weight.fill_(0.5);
  }
}

TEST_CASE("data parallel: a module that has got other memory or another type since is refused, by the tensor's name") {
  Normed net = make<Normed>();
  DataParallel<Normed> parallel(net, {.processes = 2});
  CHECK(parallel(batch(0, 4)).size(0) == 4);
  net->to(at::kCPU);  // changes nothing
  CHECK(parallel(batch(0, 4)).size(0) == 4);
  const at::Tensor mean = net->norm->running_mean.clone();
  const at::Tensor before = net->norm->running_mean.variable_data();
  net->norm->running_mean.set_data(mean);
  CHECK_THROWS_WITH(parallel(batch(0, 4)), ContainsSubstring("'norm.running_mean' of the module is not the memory") &&
                                               ContainsSubstring("Make a new DataParallel"));
  net->norm->running_mean.set_data(before);
  CHECK(parallel(batch(0, 4)).size(0) == 4);
  net->to(at::kFloat);
  CHECK_THROWS_WITH(parallel(batch(0, 4).to(at::kFloat)), ContainsSubstring("'layer.weight' of the module is not"));
  net->to(at::kDouble);  // in new memory again
  CHECK_THROWS_AS(parallel(batch(0, 4)), std::logic_error);
  DataParallel<Normed> anew(net, {.processes = 2});
  net->eval();
  CHECK(torch::allclose(anew(batch(0, 4)), net->forward(batch(0, 4)), 1e-12, 1e-12));
}

TEST_CASE("data parallel: a number of workers below 0 is refused, with what may be given") {
  Mlp net = make<Mlp>();
  CHECK_THROWS_WITH(DataParallel<Mlp>(net, {.processes = -1}),
                    ContainsSubstring("processes is -1: give a number of workers, or 0 for one on each CPU"));
}

TEST_CASE("data parallel: a graph that outlives it says so") {
  Mlp net = make<Mlp>();
  at::Tensor loss;
  {
    DataParallel<Mlp> parallel(net, {.processes = 2});
    loss = parallel(batch(0, 4)).sum();
  }
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("it has gone"));
}

namespace {

/// Where `odd` is the input's first number, the output is a tensor that crosses nowhere.
struct OddImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 2))};
  OddImpl() { to(at::kDouble); }
  static constexpr double kOdd = 13;
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor output = layer->forward(input);
    if (input[0][0].item<double>() != kOdd) return output;
    return at::_empty_affine_quantized({1}, at::TensorOptions(at::kQUInt4x2), 1.0, 0);
  }
};
TORCH_MODULE(Odd);

/// Throws on the way back, where the input says so.
struct ThrowingImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(6, 2))};
  ThrowingImpl() { to(at::kDouble); }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor output = layer->forward(input);
    if (input[0][0].item<double>() == 13)
      output.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("on the way back"); });
    return output * 1;
  }
};
TORCH_MODULE(Throwing);

}  // namespace

TEST_CASE("data parallel: an output that cannot be sent is an error of that call, and the worker goes on") {
  Odd net = make<Odd>();
  DataParallel<Odd> parallel(net, {.processes = 2});
  const auto pids = parallel.pids();
  at::Tensor input = batch(0, 4);
  input[2][0] = OddImpl::kOdd;  // in the second worker's part
  for (int call = 0; call < 2; ++call)
    CHECK_THROWS_WITH(parallel(input), ContainsSubstring("data parallel 1") && ContainsSubstring("QUInt4x2"));
  CHECK(torch::allclose(parallel(batch(1, 4)), net->forward(batch(1, 4)), 1e-12, 1e-12));
  CHECK(parallel.pids() == pids);
}

TEST_CASE("data parallel: after a task that could not be sent to all workers, answers belong to their own calls") {
  Mlp net = make<Mlp>();
  net->eval();
  DataParallel<Mlp> parallel(net, {.processes = 3});
  parallel(batch(0, 6));
  // A buffer that came later and crosses nowhere. Worker 0 gets none, so that the second task is the one that fails.
  torch::nn::Linear late(1, 1);
  late->register_buffer("odd", at::_empty_affine_quantized({1}, at::TensorOptions(at::kQUInt4x2), 1.0, 0));
  late->eval();
  net->register_module("late", late);
  for (int call = 0; call < 2; ++call) CHECK_THROWS_WITH(parallel(batch(1, 6)), ContainsSubstring("QUInt4x2"));
  net->unregister_module("late");
  for (int step = 2; step < 4; ++step)
    CHECK(torch::allclose(parallel(batch(step, 6)), net->forward(batch(step, 6)), 1e-12, 1e-12));
}

TEST_CASE("data parallel: what a failed pass kept is let go of") {
  Throwing net = make<Throwing>();
  DataParallel<Throwing> parallel(net, {.processes = 2});
  const auto fail = [&](bool on_the_way_back) {
    at::Tensor input = torch::ones({2000, 6}, at::kDouble).set_requires_grad(true);
    {
      const torch::NoGradGuard no_grad;
      if (on_the_way_back) input[1000][0] = 13;  // the second worker's first sample
    }
    const at::Tensor loss = parallel(input).sum();
    if (on_the_way_back)
      CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("on the way back"));
    else
      loss.backward();
  };
  fail(false);
  fail(true);
  parallel(batch(0, 2));  // tells workers what was forgotten
  const std::size_t before = heap_bytes_in_use();
  for (int pass = 0; pass < 5; ++pass) fail(true);
  parallel(batch(0, 2));
  CHECK(heap_bytes_in_use() <= before + 4096);
}

namespace {

/// A worker whose answers nobody can read.
struct RawAnswers : Connection<shoal::detail::ParallelAnswer> {
  using AnyConnection::send;
};

void spoil(shoal::detail::ParallelEnds ends) {  // NOLINT(performance-unnecessary-value-param): a message
  const RawAnswers answers{ends.answers};
  for (;;) try {
      (void)ends.tasks.recv();
      Encoder garbage;
      garbage.write(std::uint64_t(~0ULL));
      answers.send(garbage, Deadline::never(), "send");
    } catch (const EndOfFile&) {
      return;
    }
}

}  // namespace

TEST_CASE("data parallel: after an answer that cannot be read, every later call says so") {
  Mlp net = make<Mlp>();
  const auto core =
      std::make_shared<shoal::detail::ParallelCore>(*net, 2, 0, [](int index, const shoal::detail::ParallelEnds& ends) {
        Process<void> worker({.name = "spoiled " + std::to_string(index)}, spoil, ends);
        worker.start();
        return worker;
      });
  const torch::NoGradGuard no_grad;
  for (int call = 0; call < 3; ++call) CHECK_THROWS_AS(core->forward({batch(call, 4)}), DecodeError);
}

}  // namespace data_parallel_test
