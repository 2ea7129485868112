// Inference by several processes over one copy of the weights: a TorchScript file (or a module that is made here) is
// put into shared memory once, and each worker of a pool computes with it.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/script_module.h>
#include <shoal/workers/pool.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

shoal::SharedScriptModule the_model;  // of each worker

void use_model(shoal::SharedScriptModule model) {
  at::set_num_threads(1);
  the_model = model;
}

at::Tensor infer(at::Tensor image) {
  c10::InferenceMode no_gradients;
  return the_model(image);
}

/// As torch.jit.script(model).save(path) in Python: 16 MiB of weights.
std::string save_model() {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("serve_torchscript-{}.pt", ::getpid());
  torch::jit::Module model("__torch__.Classifier");
  model.register_parameter("weight", at::ones({1024, 4096}), /*is_buffer=*/false);
  model.register_parameter("bias", at::arange(1024).to(at::kFloat), /*is_buffer=*/false);
  model.define("def forward(self, image):\n    return torch.matmul(self.weight, image.flatten()) + self.bias\n");
  model.eval();
  model.save(path.string());
  return path.string();
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const std::string path = save_model();
  const shoal::SharedScriptModule model = shoal::load_shared(path);
  std::filesystem::remove(path);  // the workers do not need it
  shoal::Pool pool({.processes = 2}, use_model, model);

  std::vector<at::Tensor> images;
  for (int i = 0; i < 20; ++i) images.push_back(at::full({64, 64}, float(i)));
  int right = 0, number = 0;
  for (at::Tensor& scores : pool.imap(infer, images)) {
    right += scores[1023].item<float>() == float(number) * 4096 + 1023 && scores.argmax().item<int>() == 1023;
    ++number;
  }
  fmt::print("{} of {} right, by {} workers over one copy of {} MiB\n", right, number, pool.size(),
             model.bytes() >> 20);
  return right == 20 ? 0 : 1;
}
