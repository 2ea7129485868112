// DDP without the Reducer, where a program touches gradients while they are reduced.
#include <fmt/format.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/train/comm_hooks.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/train/ddp/ddp_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace ddp_touched_gradients_test {

namespace {

/// Two parts of the loss without a parameter in common; gradients come in the order b, a, d, c.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    torch::manual_seed(5);
    for (auto* parameter : {&a, &b, &c, &d})
      *parameter = register_parameter(fmt::format("p{}", parameters().size()), torch::randn({64}, at::kDouble));
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) {
    return {((x * a).sin() * b).sum(), ((x * c).sin() * d).sum()};
  }
  at::Tensor a, b, c, d;
};
TORCH_MODULE(Net);

at::Tensor input_of(int rank, int step) { return batch_of(rank, step, 1, 64)[0]; }

struct Scene {
  Net net;
  DistributedDataParallel<Net> ddp;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;

  std::vector<at::Tensor> forward(int step) { return ddp.forward(input_of(process_group->getRank(), step)); }
  void step(int number) {
    net->zero_grad();
    const auto parts = forward(number);
    (parts[0] + parts[1]).backward();
  }
  /// A number for each gradient, of all its bytes in their order.
  std::string gradients() const {
    std::string text;
    for (const at::Tensor& parameter : net->parameters()) {
      if (!parameter.grad().defined()) {
        text += "none ";
        continue;
      }
      const at::Tensor bytes = parameter.grad().detach().contiguous();
      text += fmt::format("{:016x} ", std::hash<std::string_view>()(std::string_view(
                                          static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes())));
    }
    return text;
  }
};

/// What a program does after three steps; what it says is the same with the Reducer.
const std::map<std::string, std::function<std::string(Scene&)>> kScenes = {
    {"a hook clears a gradient that has come, on one rank",
     [](Scene& s) {
       const auto hook = s.net->a.register_hook([&](const at::Tensor&) {
         if (s.process_group->getRank() == 0) s.net->b.mutable_grad() = at::Tensor();
       });
       s.step(3);
       s.net->a.remove_hook(hook);
       return s.gradients();
     }},
    {"gradients are cleared between two parts of a pass",
     [](Scene& s) {
       s.net->zero_grad();
       const auto parts = s.forward(3);
       parts[0].backward();
       s.net->zero_grad();
       parts[1].backward();
       return s.gradients();
     }},
    {"the gradient's graph is kept",
     [](Scene& s) {
       s.net->zero_grad();
       const auto parts = s.forward(3);
       (parts[0] + parts[1]).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
       s.net->c.grad().pow(2).sum().backward();
       std::string text = s.gradients();
       s.step(4);
       s.net->zero_grad(false);
       return text + s.gradients();
     }},
    {"two threads are in two parts of a pass",
     [](Scene& s) {
       std::string text;
       for (int step = 3; step < 40; ++step) {
         s.net->zero_grad();
         const auto parts = s.forward(step);
         std::thread other([&] { parts[0].backward(); });
         parts[1].backward();
         other.join();
         text += s.gradients();
       }
       return text;
     }},
    {"a Join is left between a forward pass and its backward pass",
     [](Scene& s) {
       {
         Join join({s.ddp.joinable()});
         s.step(3);
         s.forward(4);
       }
       const auto calls = [&] { return s.process_group->getBackend(c10::kCPU)->getSequenceNumberForGroup(); };
       const auto before = calls();
       s.step(5);
       const auto between = calls();
       s.step(6);
       return fmt::format("{} and {} collectives", between - before, calls() - between) + s.gradients();
     }},
};

/// Refused by both, each in its words.
const std::map<std::string, std::function<void(Scene&)>> kFaults = {
    {"was replaced in the backward pass",
     [](Scene& s) {
       s.net->a.register_hook([&](const at::Tensor&) { s.net->b.mutable_grad() = torch::ones({64}, at::kDouble); });
       s.step(3);
     }},
    {"modified by an inplace operation",
     [](Scene& s) {
       const at::Tensor factor = torch::ones({64}, at::kDouble).requires_grad_();
       const at::Tensor saves = (factor * s.net->c.grad()).sum();
       s.step(3);
       saves.backward();
     }},
};

std::string act(int rank, ShmGroup group, std::string name, bool asks, Progress progress) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank, {.progress = progress});
  Net net;
  Scene scene{net, {{.bucket_bytes = 600, .first_bucket_bytes = 600}, net, process_group}, process_group};
  if (asks) scene.ddp.register_comm_hook(all_reduce_hook(process_group));
  for (int step = 0; step < 3; ++step) scene.step(step);
  if (const auto found = kScenes.find(name); found != kScenes.end()) return found->second(scene);
  try {
    kFaults.at(name)(scene);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

std::string give_other_memory(int rank, ShmGroup group) {
  at::set_num_threads(1);
  auto process_group = init_process_group(group, rank);
  Net net;
  Scene scene{net, {net, process_group}, process_group};
  for (int step = 0; step < 3; ++step) scene.step(step);
  for (const at::Tensor& parameter : net->parameters())
    parameter.mutable_grad().set_data(torch::ones({64}, at::kDouble));
  scene.step(3);
  Net alone;
  for (int other = 0; other < group.world_size(); ++other) {
    const auto parts = alone->forward(input_of(other, 3));
    ((parts[0] + parts[1]) / group.world_size()).backward();
  }
  require_same_gradients(*net, *alone, "after set_data()");
  return "right";
}

}  // namespace

TEST_CASE("DDP: a program that touches gradients while they are reduced sees what it sees with the Reducer") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (const auto& [name, scene] : kScenes) {
    INFO(name);
    const auto direct = spawn({.nprocs = 2}, act, ShmGroup(2), name, false, progress);
    CHECK(direct == spawn({.nprocs = 2}, act, ShmGroup(2), name, true, progress));
    CHECK(direct[0].find("none") == std::string::npos);
  }
}

TEST_CASE("DDP: a gradient that was replaced while it was reduced, or saved and overwritten, is not passed over") {
  const auto progress = GENERATE(Progress::in_call, Progress::thread);
  for (const auto& [name, fault] : kFaults) {
    for (const auto& said : spawn({.nprocs = 2}, act, ShmGroup(2), name, false, progress))
      CHECK_THAT(said, ContainsSubstring(name));
    for (const auto& said : spawn({.nprocs = 2}, act, ShmGroup(2), name, true, progress)) CHECK(said != "no error");
  }
}

TEST_CASE("DDP: a gradient that was given other memory is the mean again after the next step") {
  for (const auto& said : spawn({.nprocs = 2}, give_other_memory, ShmGroup(2))) CHECK(said == "right");
}

}  // namespace ddp_touched_gradients_test
