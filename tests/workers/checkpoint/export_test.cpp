// Weights that Python's torch.load reads, and those that its torch.save wrote.
#include <fmt/format.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>
#include <shoal/workers/checkpoint/export_state_dict.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/source_tree.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/checkpoint/nets.h"

using namespace shoal;
using namespace shoal::test;
namespace fs = std::filesystem;

TEST_CASE("export_state_dict: what is written is imported, and what does not fit changes nothing") {
  const TemporaryFolder folder;
  torch::nn::Sequential net = small_net(1), other = small_net(2), before = small_net(2);
  export_state_dict(folder.file("net.pt"), net);
  torch::nn::Sequential wider(torch::nn::Linear(6, 31)), shorter(torch::nn::Linear(6, 30));
  CHECK_THROWS_WITH(import_state_dict(folder.file("net.pt"), wider), ContainsSubstring("0.weight"));
  CHECK_THROWS_WITH(import_state_dict(folder.file("net.pt"), shorter), ContainsSubstring("the module does not"));
  torch::nn::Sequential longer = small_net(2);
  longer->push_back(torch::nn::Linear(4, 1));
  CHECK_THROWS_WITH(import_state_dict(folder.file("net.pt"), longer), ContainsSubstring("the file does not"));
  std::ofstream(folder.file("noise.pt")) << "PK, but nothing else";
  CHECK_THROWS_AS(import_state_dict(folder.file("noise.pt"), other), CheckpointError);
  CHECK_THROWS_AS(import_state_dict(folder.file("none.pt"), other), SystemError);
  CHECK(same_values(*other, *before));
  import_state_dict(folder.file("net.pt"), other);
  CHECK(same_values(*other, *net));
}

TEST_CASE("import_state_dict: without strict what fits is taken, and the rest is named and left") {
  using Names = std::vector<std::string>;
  const TemporaryFolder folder;
  const torch::nn::Sequential trained = small_net(1), before = small_net(2);
  export_state_dict(folder.file("net.pt"), trained);
  torch::nn::Sequential longer = small_net(2);
  longer->push_back(torch::nn::Linear(4, 1));
  const at::Tensor head = longer->named_parameters()["4.weight"].detach().clone();
  const IncompatibleKeys of_longer = import_state_dict(folder.file("net.pt"), longer, {.strict = false});
  CHECK(of_longer.missing_keys == Names{"4.bias", "4.weight"});
  CHECK(of_longer.unexpected_keys.empty());
  CHECK(torch::equal(longer->named_parameters()["4.weight"], head));
  CHECK(torch::equal(longer->named_parameters()["0.weight"], trained->named_parameters()["0.weight"]));
  CHECK(torch::equal(longer->named_buffers()["1.running_var"], trained->named_buffers()["1.running_var"]));
  torch::nn::Sequential shorter(torch::nn::Linear(6, 30));
  CHECK(import_state_dict(folder.file("net.pt"), shorter, {.strict = false}).unexpected_keys.size() == 7);
  // A shape that is another one is no name that is missing, and a file of another network altogether is a mistake.
  export_state_dict(folder.file("wider.pt"), torch::nn::Sequential(torch::nn::Linear(6, 31)));
  CHECK_THROWS_WITH(import_state_dict(folder.file("wider.pt"), longer, {.strict = false}),
                    ContainsSubstring("0.weight") && ContainsSubstring("[31, 6] there, and [30, 6]"));
  torch::nn::Linear alone(6, 30);
  CHECK_THROWS_WITH(import_state_dict(folder.file("net.pt"), alone, {.strict = false}),
                    ContainsSubstring("none of its names"));
}

TEST_CASE("import_state_dict: elements of another type are converted where that is asked for") {
  const TemporaryFolder folder;
  torch::nn::Sequential trained = small_net(1), half = small_net(2);
  export_state_dict(folder.file("net.pt"), trained);
  half->to(at::kBFloat16);
  CHECK_THROWS_WITH(import_state_dict(folder.file("net.pt"), half),
                    ContainsSubstring("Floats there, and BFloat16s") && ContainsSubstring("ImportOptions::cast"));
  import_state_dict(folder.file("net.pt"), half, {.cast = true});
  trained->to(at::kBFloat16);
  CHECK(same_values(*half, *trained));
  // What cannot be one is refused by its name before anything is changed.
  torch::nn::BatchNorm1d norm(3), before(3);
  torch::nn::Module odd;
  odd.register_parameter("weight", torch::full({3}, 7.0));
  odd.register_parameter("bias", torch::full({3}, 7.0));
  for (const char* name : {"running_mean", "running_var"}) odd.register_buffer(name, torch::full({3}, 7.0));
  odd.register_buffer("num_batches_tracked", torch::tensor(2.9));
  export_state_dict(folder.file("odd.pt"), odd);
  CHECK_THROWS_WITH(import_state_dict(folder.file("odd.pt"), norm, {.cast = true}),
                    ContainsSubstring("num_batches_tracked: its elements are Floats there"));
  CHECK(same_values(*norm, *before));
}

TEST_CASE("export_state_dict: Python's torch.load reads it, with weights_only, and torch.save's is imported") {
  const std::string python = in_sources(".venv/bin/python");  // not everywhere
  if (!fs::exists(python)) {
    WARN(python << " is not there: Python's torch was not asked");
    return;
  }
  const TemporaryFolder folder;
  torch::nn::Sequential net = small_net(1), other = small_net(2);
  export_state_dict(folder.file("ours.pt"), net);
  std::ofstream(folder.file("twice.py")) << R"(
import sys, torch
state = torch.load(sys.argv[1], weights_only=True)
assert isinstance(state, dict), type(state)
assert list(state)[:2] == ["0.weight", "0.bias"] and "1.running_mean" in state, list(state)
net = torch.nn.Sequential(torch.nn.Linear(6, 30), torch.nn.BatchNorm1d(30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
net.load_state_dict(state)
net.load_state_dict({name: value * 2 for name, value in state.items()})
torch.save(dict(net.state_dict()), sys.argv[2])
torch.save(net.state_dict(), sys.argv[2] + ".ordered")
)";
  REQUIRE(std::system(fmt::format("'{}' {} {} {}", python, folder.file("twice.py"), folder.file("ours.pt"),
                                  folder.file("theirs.pt"))
                          .c_str()) == 0);
  // libtorch reads no OrderedDict with attributes, which state_dict() is: the error says what to do.
  CHECK_THROWS_WITH(import_state_dict(folder.file("theirs.pt.ordered"), other),
                    ContainsSubstring("torch.save(dict(module.state_dict()), path)"));
  import_state_dict(folder.file("theirs.pt"), other);
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& tensor : net->parameters()) tensor.mul_(2);
    for (at::Tensor& tensor : net->buffers()) tensor.mul_(2);
  }
  CHECK(same_values(*other, *net));
}
