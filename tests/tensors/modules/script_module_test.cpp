#include <shoal/tensors/script_module.h>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/read_only.h>
#include <shoal/tensors/share.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/tensors/libtorch_version.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::kIsOldLibtorch;

namespace {

/// Parameters in a submodule, one of them tied; a buffer, a list of tensors, a number, and a tensor of each kind.
torch::jit::Module small_net() {
  torch::jit::Module inner("__torch__.Inner"), net("__torch__.Net");
  at::Tensor weight = at::arange(12, at::kFloat).view({4, 3});
  weight.set_requires_grad(true);
  inner.register_parameter("weight", weight, /*is_buffer=*/false);
  inner.define("def forward(self, x):\n    return torch.matmul(x, self.weight)\n");
  net.register_module("inner", inner);
  net.register_parameter("tied", weight, false);
  net.register_buffer("shift", at::full({3}, 0.5));
  for (auto type : {at::kHalf, at::kBFloat16, at::kChar, at::kBool, at::kDouble, at::kComplexFloat})
    net.register_buffer(fmt::format("of_{}", c10::toString(type)), at::ones({5}).to(type));
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_attribute("scale", c10::FloatType::get(), 2.0);
  net.register_attribute("tables", c10::ListType::ofTensors(),
                         c10::List<at::Tensor>({at::full({3}, 10.0), at::full({3}, 20.0)}));
  net.define(R"(
def forward(self, x):
    return self.inner.forward(x) * self.scale + self.shift + self.tables[1] + self.of_Half.sum().float()
def write(self):
    self.shift.add_(1)
    return self.shift
)");
  net.eval();
  return net;
}

at::Tensor input() { return at::arange(8, at::kFloat).view({2, 4}); }
at::Tensor result_of(const torch::jit::Module& module) {
  torch::jit::Module same = module;
  return same.forward({input()}).toTensor();
}

/// A file that goes with the test.
struct TemporaryFile {
  std::string path = (std::filesystem::temp_directory_path() / fmt::format("shoal-script-{}.pt", ::getpid())).string();
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string read() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

std::vector<std::uint64_t> blocks_of(const torch::jit::Module& module) {
  std::vector<std::uint64_t> blocks;
  auto add = [&](const at::Tensor& tensor) {
    if (!is_read_only(tensor)) throw Error("a tensor that can be written to");
    blocks.push_back(shared_hold(tensor)->block().value);
  };
  for (const at::Tensor& tensor : module.parameters()) add(tensor);
  for (const at::Tensor& tensor : module.buffers()) add(tensor);
  for (const at::Tensor& tensor : module.attr("tables").toTensorVector()) add(tensor);
  return blocks;
}

struct Seen {
  at::Tensor result;
  std::vector<std::uint64_t> blocks;
  bool training;
  bool requires_grad;
};
Seen compute(int, SharedScriptModule net) {
  torch::jit::Module module = net.module();
  return {result_of(module).detach(), blocks_of(module), module.is_training(),
          module.attr("tied").toTensor().requires_grad()};
}

/// Private memory of this process that is no file's, in KiB.
long anonymous_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Anonymous:")) return std::stol(line.substr(line.find(':') + 1));
  throw Error("no smaps_rollup");
}

constexpr std::int64_t kLarge = 24 << 20;  // floats: 96 MiB

torch::jit::Module large_net() {
  torch::jit::Module net("__torch__.Large");
  net.register_parameter("weight", at::ones({kLarge}), false);
  net.define("def forward(self, x):\n    return (self.weight * x[0, 1]).sum()\n");
  net.eval();
  return net;
}

/// How much a process grows that computes with it, in KiB; -1 where the result is wrong.
long growth(int, SharedScriptModule net) {
  const at::Tensor two = at::full({2, 4}, 2.0);
  (void)(two + two).sum().item<float>();
  const long before = anonymous_kib();
  torch::jit::Module module = net.module();
  const long after = anonymous_kib();
  c10::InferenceMode guard;
  return module.forward({two}).toTensor().item<float>() == 2.f * float(kLarge) ? after - before : -1;
}

bool is_made_once(int, std::vector<SharedScriptModule> twice, Queue<SharedScriptModule> queue) {
  const SharedScriptModule third = queue.get();
  const auto first = twice[0].module()._ivalue();
  return first == twice[1].module()._ivalue() && first == third.module()._ivalue();
}

std::string write_in_rank(int, SharedScriptModule net) {
  try {
    net.module().run_method("write");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "it was written to";
}

}  // namespace

TEST_CASE("TorchScript: a module is the same memory in every process, and computes as before") {
  torch::jit::Module plain = small_net();
  const at::Tensor expected = result_of(plain).detach();
  const std::size_t bytes = [&] {
    std::size_t sum = 3 * 4 * 2;  // the tables
    for (const at::Tensor& buffer : plain.buffers()) sum += buffer.nbytes();
    return sum + 12 * 4;  // the parameters, which are one
  }();
  TemporaryFile file;
  plain.save(file.path);
  const SharedScriptModule net = load_shared(file.path);
  CHECK(net.bytes() == bytes);
  CHECK(net(input()).equal(expected));
  const std::vector<std::uint64_t> blocks = blocks_of(net.module());
  CHECK(blocks[0] == blocks[1]);  // tied
  for (const Seen& seen : spawn({.nprocs = 2}, compute, net)) {
    CHECK(seen.result.equal(expected));
    CHECK(seen.blocks == blocks);
    CHECK_FALSE(seen.training);
    CHECK(seen.requires_grad);
  }
}

TEST_CASE("TorchScript: private memory does not grow by the weights") {
  const SharedScriptModule net(large_net());
  CHECK(net.bytes() == std::size_t(kLarge) * 4);
  for (long kib : spawn({.nprocs = 2}, growth, net)) {
    CHECK(kib >= 0);
    CHECK(kib < long(kLarge) * 4 / 1024 / 2);
  }
  CHECK(growth(0, net) < long(kLarge) * 4 / 1024 / 2);
}

TEST_CASE("TorchScript: a frozen module's weights, which are constants of its code, are shared as well") {
  const torch::jit::Module frozen = torch::jit::freeze(large_net());
  CHECK(frozen.parameters().size() == 0);
  const SharedScriptModule net(frozen);
  CHECK(net.bytes() >= std::size_t(kLarge) * 4);
  for (long kib : spawn({.nprocs = 2}, growth, net)) {
    CHECK(kib >= 0);
    CHECK(kib < long(kLarge) * 4 / 1024 / 2);
  }
}

TEST_CASE("TorchScript: a module given to be shared is read-only itself") {
  torch::jit::Module plain = small_net();
  const SharedScriptModule net(plain, {.name = "net"});
  CHECK(is_read_only(plain.attr("shift").toTensor()));
  CHECK(blocks_of(plain) == blocks_of(net.module()));
}

TEST_CASE("TorchScript: code that writes to a weight gets an exception with its name, in every process") {
  const SharedScriptModule net(small_net(), {.name = "net"});
  const std::string named = kIsOldLibtorch ? "" : "'net.shift' [3] float";
  CHECK_THROWS_WITH(net.module().run_method("write"), ContainsSubstring(named));
  for (const std::string& said : spawn({.nprocs = 2}, write_in_rank, net)) {
    CHECK_THAT(said, ContainsSubstring(named));
    CHECK(said != "it was written to");
  }
  CHECK(net.module().attr("shift").toTensor().equal(at::full({3}, 0.5)));
}

TEST_CASE("TorchScript: a process makes a module that comes again once") {
  const SharedScriptModule net(small_net());
  Queue<SharedScriptModule> queue(1);
  queue.put(net);
  CHECK(spawn({.nprocs = 1}, is_made_once, std::vector<SharedScriptModule>{net, net}, queue) ==
        std::vector<bool>{true});
}

TEST_CASE("TorchScript: kernels that read through pointers to write may, as an LSTM's") {
  torch::jit::Module net("__torch__.Recurrent");
  for (const char* name : {"w_ih", "w_hh"}) net.register_parameter(name, at::full({8, 2}, 0.1), false);
  for (const char* name : {"b_ih", "b_hh"}) net.register_parameter(name, at::zeros({8}), false);
  net.define(R"(
def forward(self, x):
    h = torch.zeros([1, 1, 2])
    return torch.lstm(x, [h, h], [self.w_ih, self.w_hh, self.b_ih, self.b_hh], True, 1, 0.0, False, False, False)[0]
)");
  const at::Tensor x = at::ones({3, 1, 2});
  const at::Tensor expected = net.forward({x}).toTensor().detach();
  const SharedScriptModule shared(net);
  CHECK(is_read_only(shared.module().attr("w_ih").toTensor()));
  CHECK(shared(x).allclose(expected));
}

TEST_CASE("TorchScript: what is not on the CPU is refused by name, and nothing is changed") {
  torch::jit::Module net = small_net();
  net.register_buffer("elsewhere", at::empty({2}, at::kMeta));
  CHECK_THROWS_WITH(SharedScriptModule(net),
                    ContainsSubstring("'elsewhere' on meta") && ContainsSubstring("module.to(at::kCPU)"));
  CHECK_FALSE(is_shared(net.attr("shift").toTensor()));
}

TEST_CASE("TorchScript: a weight that others have already is refused") {
  torch::jit::Module net = small_net();
  at::Tensor shift = net.attr("shift").toTensor();
  share_memory_(shift);
  Queue<at::Tensor> queue(1);
  queue.put(shift);
  CHECK_THROWS_WITH(SharedScriptModule(net), ContainsSubstring("others have the tensor 'shift'"));
}

TEST_CASE("TorchScript: files that are missing, damaged or something else are errors with their path") {
  TemporaryFile file;
  auto check_refused = [&] {
    CHECK_THROWS_AS(load_shared(file.path), Error);
    CHECK_THROWS_WITH(load_shared(file.path), ContainsSubstring("libtorch cannot read " + file.path + " as a file by"));
  };
  check_refused();
  small_net().save(file.path);
  const std::string whole = file.read();
  for (std::size_t size : {std::size_t(0), std::size_t(10), whole.size() / 2, whole.size() - 30}) {
    CAPTURE(size);
    file.write(whole.substr(0, size));
    check_refused();
  }
  file.write("by no means a module");
  check_refused();
}

TEST_CASE("TorchScript: nothing crosses as nothing") {
  const SharedScriptModule none;
  CHECK_FALSE(none);
  CHECK(none.bytes() == 0);
  CHECK_THROWS_WITH(none.module(), ContainsSubstring("load_shared()"));
  Queue<SharedScriptModule> queue(1);
  queue.put(none);
  CHECK_FALSE(queue.get());
}

TEST_CASE("script module: a process that is forked while another thread makes the module makes its own") {
  const at::Tensor expected = result_of(small_net());
  Forked child([&] {
    const SharedScriptModule shared(small_net());
    delay_at("script_module.made", {.mean = 1'000'000, .one_in = 1});
    std::thread making([&] { (void)shared.module(); });
    while (kill_points::delays_made() == 0) std::this_thread::yield();
    Forked grandchild([&] {
      ::alarm(30);
      if (!at::equal(result_of(shared.module()), expected)) throw Error("another result");
      SharedScriptModule another(small_net());
    });
    making.join();
    if (grandchild.join() != 0) throw Error("the fork failed");
    if (!at::equal(result_of(shared.module()), expected)) throw Error("another result in the parent");
  });
  CHECK(child.join() == 0);
}
