#include <shoal/tensors/module_state.h>

#include <shoal/ipc/queue.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/module.h>
#include <shoal/tensors/read_only.h>
#include <shoal/tensors/share.h>
#include <torch/torch.h>

#include <tuple>

#include "tests/support/catch.h"
#include "tests/tensors/libtorch_version.h"

using namespace shoal;

namespace {

/// With a tied parameter, a tied buffer, a frozen parameter, a bias that is switched off, and layers with buffers.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : in(register_module("in", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        out(register_module("out", std::make_shared<Tied>(4, 4))),
        steps(register_buffer("steps", at::zeros({2}))) {
    out->tie(in->weight);
    norm->register_buffer("steps_too", steps);
    out->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return out->forward(norm->forward(in->forward(x))); }

  struct Tied : torch::nn::LinearImpl {
    using LinearImpl::LinearImpl;
    void tie(const at::Tensor& other) {
      parameters_.erase("weight");
      weight = register_parameter("weight", other);
    }
  };
  torch::nn::Linear in;
  torch::nn::BatchNorm1d norm;
  std::shared_ptr<Tied> out;
  at::Tensor steps;
};
TORCH_MODULE(Net);

/// Is constructed with arguments.
struct SizedImpl : torch::nn::Module {
  SizedImpl(std::int64_t inputs, std::string name)
      : inputs(inputs), name(std::move(name)), layer(register_module("layer", torch::nn::Linear(inputs, 2))) {}
  auto shoal_arguments() const { return std::tuple(inputs, name); }
  std::int64_t inputs;
  std::string name;
  torch::nn::Linear layer;
};
TORCH_MODULE(Sized);

struct Mean {
  double value;
  Net net;
};

double first_weight(const Net& net) { return net->in->weight[0][0].item<double>(); }

/// The parent's module, if that is shared; changed here and returned.
Mean change(int, Net net) {
  torch::NoGradGuard no_grad;
  net->in->weight.fill_(7);
  return {net->out->weight.mean().item<double>(), net};
}

void use_state(int, ModuleState state) {
  Net net;
  use_module_state(net, state);
  torch::NoGradGuard no_grad;
  net->in->weight.fill_(9);
  if (net->out->weight[1][1].item<double>() != 9) throw Error("tied no more");
}

}  // namespace

static_assert(Encodable<Net> && Encodable<Sized> && Encodable<ModuleState> && Encodable<Mean>);
static_assert(!Encodable<torch::nn::Linear> && !Encodable<torch::nn::Sequential>);

TEST_CASE("module state: names as in torch's state_dict, each tensor once, those that are undefined left out") {
  Net net;
  const ModuleState state = module_state(net);
  std::vector<std::string> keys;
  for (const auto& entry : state.entries) keys.push_back(entry.key);
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"in.weight", "norm.bias", "norm.num_batches_tracked", "norm.running_mean",
                                         "norm.running_var", "norm.steps_too", "norm.weight", "out.bias", "out.weight",
                                         "steps"});
  CHECK(state.tensors.size() == 8);
  CHECK(state.at("in.weight").data_ptr() == net->in->weight.data_ptr());
  CHECK(state.at("steps").data_ptr() == state.at("norm.steps_too").data_ptr());
  CHECK_THROWS_WITH(state.at("in.bias"), ContainsSubstring("in.bias"));
}

TEST_CASE("module state: loading copies the values, using makes them one memory") {
  Net from, copy, alias;
  from->in->weight.data().fill_(3);
  load_module_state(copy, module_state(from));
  CHECK(first_weight(copy) == 3);
  CHECK(copy->in->weight.data_ptr() != from->in->weight.data_ptr());
  copy->in->weight.data().fill_(4);
  CHECK(first_weight(from) == 3);
  const at::Tensor weight = alias->in->weight;  // what an optimizer has
  from->in->weight.set_requires_grad(false);
  use_module_state(alias, module_state(from));
  from->in->weight.data().fill_(5);
  CHECK(first_weight(alias) == 5);
  CHECK(weight[0][0].item<double>() == 5);
  CHECK(weight.unsafeGetTensorImpl() == alias->in->weight.unsafeGetTensorImpl());
  CHECK(alias->out->weight.unsafeGetTensorImpl() == alias->in->weight.unsafeGetTensorImpl());
  CHECK_FALSE(weight.requires_grad());
  CHECK(alias->norm->weight.requires_grad());
  CHECK_FALSE(alias->out->bias.requires_grad());
}

TEST_CASE("module state: what does not fit is refused by its key, and nothing is changed") {
  Net net;
  net->in->weight.data().fill_(1);
  const ModuleState good = module_state(Net());
  auto refused = [&](auto&& spoil, const std::string& text) {
    ModuleState state = good;
    spoil(state);
    CHECK_THROWS_WITH(load_module_state(net, state), ContainsSubstring(text));
    CHECK_THROWS_AS(use_module_state(net, state), std::invalid_argument);
    CHECK(first_weight(net) == 1);
  };
  auto entry = [](ModuleState& state, const std::string& key) -> ModuleState::Entry& {
    for (auto& each : state.entries)
      if (each.key == key) return each;
    throw std::runtime_error("no " + key);
  };
  refused([&](ModuleState& s) { std::erase_if(s.entries, [](auto& e) { return e.key == "out.bias"; }); },
          "'out.bias' is missing");
  refused([&](ModuleState& s) { s.entries.push_back({"extra", false, false, 0}); }, "no 'extra'");
  refused([&](ModuleState& s) { s.entries.push_back(s.entries[0]); }, "twice");
  refused([&](ModuleState& s) { s.tensors[entry(s, "out.bias").tensor] = at::zeros({5}); },
          "'out.bias' is [5] Float in it, and [4] Float");
  refused([&](ModuleState& s) { s.tensors[entry(s, "out.bias").tensor] = at::zeros({4}, at::kLong); },
          "'out.bias' is [4] Long");
  refused([&](ModuleState& s) { entry(s, "out.bias").buffer = true; }, "'out.bias' is a buffer");
  refused([&](ModuleState& s) { entry(s, "out.bias").tensor = 77; }, "'out.bias' has no tensor");
  refused(
      [&](ModuleState& s) {
        entry(s, "out.weight").tensor = std::uint32_t(s.tensors.size());
        s.tensors.push_back(at::zeros({4, 4}));
      },
      "tied in the module, but not in it");
  refused([&](ModuleState& s) { entry(s, "norm.weight").tensor = entry(s, "out.bias").tensor; },
          "tied in it, but not in the module");
  load_module_state(net, good);
  CHECK(first_weight(net) != 1);
}

TEST_CASE("module state: ranks that use a shared module's state write to the same memory, tied ones included") {
  Net net;
  share_memory_(net);
  spawn({.nprocs = 1}, use_state, module_state(net));
  CHECK(first_weight(net) == 9);
  CHECK(net->out->weight[2][2].item<double>() == 9);
}

TEST_CASE("module: a holder is an argument and a result, shared or not, by each start method") {
  const auto method = GENERATE(StartMethod::spawn, StartMethod::forkserver, StartMethod::fork);
  const bool shared = GENERATE(false, true);
  Net net;
  net->eval();
  net->norm->train();
  net->in->weight.data().fill_(1);
  if (shared) share_memory_(net);
  auto results = spawn({.nprocs = 1, .start_method = method, .fork_despite_threads = true}, change, net);
  CHECK(first_weight(net) == (shared ? 7 : 1));
  const Mean& mean = results.at(0);
  CHECK(mean.value == 7);
  CHECK(first_weight(mean.net) == 7);
  CHECK(mean.net->out->weight.unsafeGetTensorImpl() == mean.net->in->weight.unsafeGetTensorImpl());
  CHECK(mean.net->steps.data_ptr() == mean.net->norm->named_buffers()["steps_too"].data_ptr());
  CHECK_FALSE(mean.net->is_training());
  CHECK(mean.net->norm->is_training());
  CHECK_FALSE(mean.net->out->bias.requires_grad());
  CHECK(mean.net->in->weight.requires_grad());
}

TEST_CASE("module: one that is constructed with arguments, an empty one, and a read-only one") {
  Queue<Sized> queue(3);
  Sized sized(5, "name");
  read_only({.name = "net"}, sized);
  queue.put(sized);
  queue.put(Sized(nullptr));
  Sized got = queue.get();
  CHECK(got->inputs == 5);
  CHECK(got->name == "name");
  CHECK(at::equal(got->layer->weight, sized->layer->weight));
  CHECK(is_read_only(got->layer->weight));
  CHECK_THROWS_AS(got->layer->weight.data().add_(1), test::RefusedWrite);
  CHECK(queue.get().is_empty());
}
