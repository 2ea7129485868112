// DDP after its first step: gradients that are reduced without the Reducer, beside those that it reduces.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace ddp_direct_test {

namespace {

/// Gradients of many kinds: rows and columns exchanged, one value for all, conjugated, of several types, of no element.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(3);
    filter = register_parameter("filter",
                                torch::randn({4, 3, 2, 2}, at::kDouble).contiguous(at::MemoryFormat::ChannelsLast));
    turned = register_parameter("turned", torch::randn({3, 4}, at::kDouble).t());
    spread = register_parameter("spread", torch::randn({7}, at::kDouble));
    complex = register_parameter("complex", torch::randn({5}, at::kComplexDouble));
    scalar = register_parameter("scalar", torch::randn({}, at::kFloat));
    half = register_parameter("half", torch::randn({9}, at::kBFloat16));
    none = register_parameter("none", torch::randn({0, 3}, at::kDouble));
    other = register_parameter("other", torch::randn({300}, at::kDouble));
  }
  /// Two parts of the loss, which have no parameter in common.
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor inner = torch::conv2d(x, filter).relu().mean({2, 3}).matmul(turned);
    const at::Tensor phase = at::real(complex.conj() * torch::complex(x.sum(), x.mean()));
    return {(inner.pow(2).sum() + spread.sum() * x.sum()) * scalar.to(at::kDouble) + none.sum() * 2,
            phase.sum() + (half.to(at::kDouble) * x.mean()).pow(2).sum() + (other * x.flatten()[0]).sin().sum()};
  }
  at::Tensor filter, turned, spread, complex, scalar, half, none, other;
};
TORCH_MODULE(Net);

struct Trained {
  std::vector<std::vector<at::Tensor>> gradients;  // after each pass
  bool in_heap = true;                             // all of the last step's
};

/// Twelve steps, each of which goes its own way. `asks`: by a hook, which only the Reducer calls; it makes the same mean.
Trained train(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, std::int64_t bucket_bytes, bool asks) {
  Net net;
  DistributedDataParallel<Net> ddp({.bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes}, net,
                                   process_group);
  if (asks) ddp.register_comm_hook(all_reduce_hook(process_group));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
  Trained trained;
  int batches = 0;
  const auto forward = [&] {
    torch::manual_seed(100 * process_group->getRank() + batches++);
    return ddp.forward(torch::randn({2, 3, 5, 5}, at::kDouble));
  };
  const auto loss = [&] {
    const auto parts = forward();
    return parts[0] + parts[1];
  };
  const auto keep = [&] {
    std::vector<at::Tensor>& of_pass = trained.gradients.emplace_back();
    for (const at::Tensor& parameter : net->parameters())
      of_pass.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  };
  const auto pass = [&](const at::Tensor& of) {
    of.backward();
    keep();
  };
  for (int step = 0; step < 12; ++step) {
    if (step != 7) optimizer.zero_grad(/*set_to_none=*/step != 2);
    if (step == 3) {
      for (int i = 0; i < 2; ++i) {
        const auto local = ddp.no_sync();
        pass(loss());
      }
      pass(loss());
    } else if (step == 4) {
      const at::Tensor first = loss();
      pass(first + loss());
    } else if (step == 5) {  // the pass is over when the second part has come
      const auto parts = forward();
      pass(parts[0]);
      pass(parts[1]);
    } else if (step == 6) {
      loss();
      pass(loss());
    } else if (step == 8) {  // the second one is this rank's own
      const at::Tensor twice = loss();
      twice.backward({}, /*retain_graph=*/true);
      keep();
      pass(twice);
    } else if (step == 9) {  // adds to what is no view of a bucket, and has rows one after the other
      torch::manual_seed(9);
      for (const at::Tensor& parameter : net->parameters())
        parameter.mutable_grad() = torch::rand(parameter.sizes(), parameter.options().requires_grad(false));
      pass(loss());
    } else {
      pass(loss());
    }
    optimizer.step();
    keep();
  }
  for (const at::Tensor& parameter : net->parameters())
    trained.in_heap = trained.in_heap && (parameter.numel() == 0 || is_shared(parameter.grad()));
  return trained;
}

std::string compare(int rank, ShmGroup group, std::int64_t bucket_bytes, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  const Trained direct = train(process_group, bucket_bytes, false), asked = train(process_group, bucket_bytes, true);
  require(direct.in_heap && asked.in_heap, "gradients are not in the heap");
  require(direct.gradients.size() == asked.gradients.size(), "other passes");
  std::size_t compared = 0;
  for (std::size_t pass = 0; pass < direct.gradients.size(); ++pass)
    for (std::size_t i = 0; i < direct.gradients[pass].size(); ++i) {
      const at::Tensor &a = direct.gradients[pass][i], &b = asked.gradients[pass][i];
      const std::string what = fmt::format("gradient {} after pass {}", i, pass);
      require(a.defined() == b.defined(), what + ": one is none");
      if (!a.defined()) continue;
      require(a.strides() == b.strides(), what + ": other strides");
      require(a.equal(b), what + ": other values");
      ++compared;
    }
  return fmt::format("{} equal", compared);
}

struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    torch::manual_seed(5);
    for (const char* name : {"a", "both", "c"}) register_module(name, torch::nn::Linear(4, 4));
    to(at::kDouble);
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    const auto of = [&](const char* name) { return named_children()[name]->as<torch::nn::Linear>()->forward(x); };
    return {(of("a") * of("both")).sum(), (of("both") * of("c")).sum()};
  }
};
TORCH_MODULE(Branches);

/// The third step's passes both reach one layer. What was said, and by how much the gradients of the next step are wrong.
std::vector<std::string> come_twice(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Branches net;
  DistributedDataParallel<Branches> ddp(net, process_group);
  std::vector<std::string> said;
  for (int step = 0; step < 6; ++step) {
    net->zero_grad();
    const auto parts = ddp.forward(batch_of(rank, step, 2, 4));
    if (step != 3) {
      (parts[0] + parts[1]).backward();
      std::vector<at::Tensor> all;
      Branches alone;
      for (int other = 0; other < group.world_size(); ++other) all.push_back(batch_of(other, step, 2, 4));
      const auto of_all = alone->forward(torch::cat(all));
      ((of_all[0] + of_all[1]) / group.world_size()).backward();
      require_same_gradients(*net, *alone, fmt::format("step {}", step));
      continue;
    }
    try {
      parts[0].backward();
      parts[1].backward();
    } catch (const std::exception& error) {
      said.emplace_back(error.what());
    }
  }
  return said;
}

/// The gradient of "some" is none on rank 0, where its path asks for none.
struct StopsOn0 : torch::autograd::Function<StopsOn0> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, bool stops) {
    context->saved_data["stops"] = stops;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {context->saved_data["stops"].toBool() ? at::Tensor() : gradients[0], at::Tensor()};
  }
};

struct StoppedImpl : torch::nn::Module {
  StoppedImpl() {
    some = register_parameter("some", torch::ones({3}, at::kDouble));
    always = register_parameter("always", torch::ones({3}, at::kDouble));
  }
  at::Tensor forward(bool stops, double factor) { return (StopsOn0::apply(some, stops) * always * factor).sum(); }
  at::Tensor some, always;
};
TORCH_MODULE(Stopped);

std::string without_one(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Stopped net;
  DistributedDataParallel<Stopped> ddp(net, process_group);
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    ddp.forward(rank == 0, rank + 1).backward();
    require_close(net->some.grad(), torch::full({3}, 1.0, at::kDouble), fmt::format("step {}, some", step));
    require_close(net->always.grad(), torch::full({3}, 1.5, at::kDouble), fmt::format("step {}, always", step));
  }
  return "right";
}

/// Steps before a Join, in one, and after it.
std::string around_join(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Branches net, reference;
  DistributedDataParallel<Branches> ddp(net, process_group);
  const int world = group.world_size();
  int number = 0;
  const auto step = [&](auto has_batch, bool mine) {
    net->zero_grad();
    reference->zero_grad();
    double batches = 0;
    for (int other = 0; other < world; ++other) batches += has_batch(other) ? 1 : 0;
    for (int other = 0; other < world; ++other) {
      if (!has_batch(other)) continue;
      const auto parts = reference->forward(batch_of(other, number, 2, 4));
      ((parts[0] + parts[1]) / batches).backward();
    }
    if (mine) {
      const auto parts = ddp.forward(batch_of(rank, number, 2, 4));
      (parts[0] + parts[1]).backward();
      require_same_gradients(*net, *reference, fmt::format("step {}", number));
    }
    ++number;
  };
  const auto everybody = [](int) { return true; };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) step(everybody, true);
    {
      Join join({ddp.joinable()});
      const int begin = number;
      for (int i = 0; i < 2 + rank; ++i) step([&](int other) { return number - begin < 2 + other; }, true);
      join.finish();
      number = begin + 1 + world;
    }
  }
  for (int i = 0; i < 3; ++i) step(everybody, true);
  return "right";
}

}  // namespace

TEST_CASE("DDP: steps without the Reducer give every gradient the bits that its steps give") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (const int world : {1, 2, 3})
    for (const std::int64_t bucket_bytes : {25 << 20, 200}) {
      INFO(world << " ranks, buckets of " << bucket_bytes << " bytes");
      for (const std::string& said : spawn({.nprocs = world}, compare, ShmGroup(world), bucket_bytes, progress))
        CHECK(said == "221 equal");  // of 28 times 8; three have none after the first part of step 5
    }
}

TEST_CASE("DDP: a gradient that comes twice in one pass is named, and the ranks go on") {
  for (const auto& said : spawn({.nprocs = 2}, come_twice, ShmGroup(2))) {
    REQUIRE(said.size() == 1);
    CHECK_THAT(said[0], ContainsSubstring("the gradient of both.") && ContainsSubstring("came twice") &&
                            ContainsSubstring("static_graph"));
  }
}

TEST_CASE("DDP: a rank whose gradient of a parameter is none gets the mean that counts it as zero") {
  for (const std::string& said : spawn({.nprocs = 2}, without_one, ShmGroup(2))) CHECK(said == "right");
}

TEST_CASE("DDP: steps go with the Reducer in a Join, and without it before and after") {
  for (const std::string& said : spawn({.nprocs = 3}, around_join, ShmGroup(3))) CHECK(said == "right");
}

}  // namespace ddp_direct_test
