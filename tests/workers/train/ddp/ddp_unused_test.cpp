// DDP's find_unused_parameters: which parameters a forward pass may leave out, and what it may return.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/error.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <array>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/catch.h"

using namespace shoal;

namespace ddp_unused_test {

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

at::Tensor input_of(int rank, int step) {
  torch::manual_seed(1000 + 10 * step + rank);
  return torch::randn({8, 6}, at::kDouble);
}

/// Two layers, of which a forward pass uses one or both.
struct TwoPathsImpl : torch::nn::Module {
  TwoPathsImpl()
      : first(register_module("first", torch::nn::Linear(6, 4))),
        second(register_module("second", torch::nn::Linear(6, 4))) {
    to(at::kDouble);
  }
  torch::nn::Linear first, second;
};

struct SwitchImpl : TwoPathsImpl {
  at::Tensor forward(const at::Tensor& x, bool use_second) { return use_second ? second(x) : first(x); }
};
TORCH_MODULE(Switch);

/// The gradient that one process with both ranks' batches would have; undefined where no rank used the layer.
at::Tensor joint_gradient(torch::nn::Linear layer, int step, const std::vector<int>& ranks_that_use_it, int world) {
  layer->weight.mutable_grad() = at::Tensor();
  for (int rank : ranks_that_use_it) (layer(input_of(rank, step)).pow(2).mean() / world).backward();
  return layer->weight.grad();
}

std::string change_the_set(int rank, ShmGroup group, bool ranks_differ) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Switch net, reference;
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    reference->parameters()[i].detach().copy_(net->parameters()[i].detach());
  DistributedDataParallel<Switch> ddp(DistributedDataParallelOptions{.find_unused_parameters = true}, net,
                                      process_group);
  for (int step = 0; step < 6; ++step) {
    net->zero_grad();
    auto uses_second = [&](int of_rank) { return (step + (ranks_differ ? of_rank : 0)) % 2 == 1; };
    ddp.forward(input_of(rank, step), uses_second(rank)).pow(2).mean().backward();
    std::vector<int> first, second;
    for (int other = 0; other < group.world_size(); ++other) (uses_second(other) ? second : first).push_back(other);
    auto check = [&](const char* name, torch::nn::Linear& own, torch::nn::Linear& like, const std::vector<int>& users) {
      at::Tensor wanted = joint_gradient(like, step, users, group.world_size());
      require(own->weight.grad().defined() == wanted.defined(), fmt::format("{}: gradient or none, {}", step, name));
      if (wanted.defined())
        require(torch::allclose(own->weight.grad(), wanted, 1e-9, 1e-12), fmt::format("{}: {}", step, name));
    };
    check("first", net->first, reference->first, first);
    check("second", net->second, reference->second, second);
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: the set of unused parameters may change from step to step, and from rank to rank") {
  for (bool ranks_differ : {false, true})
    for (auto& said : spawn({.nprocs = 2}, change_the_set, ShmGroup(2), ranks_differ)) CHECK(said == "went through");
}

namespace {

/// What forward() may return: an aggregate with an optional, in a container.
struct Heads {
  at::Tensor scores;
  std::optional<at::Tensor> more;
  int number = 0;
};

struct StructImpl : TwoPathsImpl {
  std::vector<Heads> forward(const at::Tensor& x, bool with_more) {
    std::vector<Heads> heads(1);
    heads[0].scores = first(x);
    if (with_more) heads[0].more = second(x);
    return heads;
  }
};
TORCH_MODULE(Struct);

std::string return_a_struct(int rank, ShmGroup group, bool use_more) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  Struct net;
  DistributedDataParallel<Struct> ddp(DistributedDataParallelOptions{.find_unused_parameters = true}, net,
                                      process_group);
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    const bool with_more = step % 2 == 0;
    auto heads = ddp.forward(input_of(rank, step), with_more);
    at::Tensor loss = heads[0].scores.pow(2).mean();
    if (with_more && use_more) loss = loss + heads[0].more->pow(2).mean();
    loss.backward();
    require(net->first->weight.grad().defined(), fmt::format("{}: no gradient of what the loss uses", step));
    require(net->second->weight.grad().defined() == (with_more && use_more),
            fmt::format("{}: gradient or none of what the loss may not use", step));
    // Also in place: results are nobody else's memory.
    heads[0].scores.detach().zero_();
  }
  return "went through";
}

/// Whatever else the codec knows.
using Mixture = std::tuple<std::map<std::string, at::Tensor>, std::variant<int, std::monostate, at::Tensor>,
                           std::unique_ptr<at::Tensor>, std::array<std::deque<at::Tensor>, 1>, std::chrono::seconds,
                           std::pair<std::filesystem::path, std::vector<bool>>>;
static_assert(shoal::detail::can_be_searched<Mixture>());
static_assert(!shoal::detail::can_be_searched<std::set<std::vector<at::Tensor>>>());  // whose elements stay as they are
static_assert(shoal::detail::can_be_searched<std::set<std::string>>());

struct MixtureNetImpl : torch::nn::Module {
  MixtureNetImpl() {
    for (int i = 0; i < 4; ++i) layers.emplace_back(register_module(std::to_string(i), torch::nn::Linear(6, 4)));
    to(at::kDouble);
  }
  Mixture forward(const at::Tensor& x) {
    Mixture result;
    std::get<0>(result)["first"] = layers[0](x);
    std::get<1>(result) = layers[1](x);
    std::get<2>(result) = std::make_unique<at::Tensor>(layers[2](x));
    std::get<3>(result)[0].push_back(layers[3](x));
    return result;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(MixtureNet);

/// The loss uses one of the four results; the other three layers are unused then.
std::string return_a_mixture(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  torch::manual_seed(0);
  MixtureNet net;
  DistributedDataParallel<MixtureNet> ddp({.find_unused_parameters = true}, net, process_group);
  for (std::size_t used = 0; used < 4; ++used) {
    net->zero_grad();
    Mixture result = ddp.forward(input_of(rank, int(used)));
    const at::Tensor results[] = {std::get<0>(result).at("first"), std::get<at::Tensor>(std::get<1>(result)),
                                  *std::get<2>(result), std::get<3>(result)[0][0]};
    results[used].pow(2).mean().backward();
    for (std::size_t layer = 0; layer < 4; ++layer)
      require(net->layers[layer]->weight.grad().defined() == (layer == used),
              fmt::format("result {}: gradient or none of layer {}", used, layer));
  }
  return "went through";
}

/// A result that hides its tensors.
class Opaque {
 public:
  explicit Opaque(at::Tensor hidden) : hidden_(std::move(hidden)) {}
  at::Tensor get() const { return hidden_; }

 private:
  at::Tensor hidden_;
};

struct OpaqueNetImpl : TwoPathsImpl {
  Opaque forward(const at::Tensor& x) { return Opaque(first(x) + second(x)); }
};
TORCH_MODULE(OpaqueNet);

std::string return_what_hides_tensors(int rank, ShmGroup group, bool find) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  OpaqueNet net;
  DistributedDataParallel<OpaqueNet> ddp(DistributedDataParallelOptions{.find_unused_parameters = find}, net,
                                         process_group);
  try {
    ddp.forward(input_of(rank, 0)).get().sum().backward();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "went through";
}

}  // namespace

TEST_CASE("DDP: results of forward() may be structs with optionals, of which the loss need not use all") {
  for (bool use_more : {true, false})
    for (auto& said : spawn({.nprocs = 2}, return_a_struct, ShmGroup(2), use_more)) CHECK(said == "went through");
}

TEST_CASE("DDP: results of forward() may be maps, variants, pointers, tuples, in each other") {
  for (auto& said : spawn({.nprocs = 2}, return_a_mixture, ShmGroup(2))) CHECK(said == "went through");
}

TEST_CASE("DDP: a result in which no tensors are found is refused where they are needed") {
  CHECK_THAT(spawn({.nprocs = 1}, return_what_hides_tensors, ShmGroup(1), true)[0],
             ContainsSubstring("forward() returns") && ContainsSubstring("Opaque") &&
                 ContainsSubstring("in which no tensors can be found"));
  CHECK(spawn({.nprocs = 1}, return_what_hides_tensors, ShmGroup(1), false)[0] == "went through");
}

}  // namespace ddp_unused_test
