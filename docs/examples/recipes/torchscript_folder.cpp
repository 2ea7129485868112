// A TorchScript model over a folder of pictures: worker processes decode and compute, with one copy of the weights.
//
//     torchscript_folder [FOLDER MODEL.pt]      without them it makes both: 60 pictures, and a model of their brightness
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/script_module.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/images/decode.h>
#include <shoal/workers/images/encode.h>
#include <shoal/workers/pool.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fs = std::filesystem;

shoal::SharedScriptModule the_model;  // of each worker

void use_model(shoal::SharedScriptModule model) { the_model = model; }

// What comes back for each picture.
struct Answer {
  std::optional<std::int64_t> best;  // nothing: the file cannot be decoded
  std::string error;
};

Answer classify(fs::path path) {
  c10::InferenceMode no_gradients;
  try {
    return {the_model(shoal::read_image(path)).argmax().item<std::int64_t>(), ""};
  } catch (const shoal::DatasetError& error) {
    return {std::nullopt, error.what()};  // one bad file is one answer, not the end
  }
}

// Ten classes by brightness: score k is highest if the mean is nearest to 20 k.
void save_model(const fs::path& path) {
  torch::jit::Module model("__torch__.Brightness");
  model.register_parameter("centres", at::arange(10).mul(20).to(at::kFloat), /*is_buffer=*/false);
  model.define("def forward(self, image):\n    return -(image.float().mean() - self.centres).abs()\n");
  model.eval();
  model.save(path.string());
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const bool given = argc > 2;
  const fs::path folder = given ? fs::path(argv[1]) : fs::temp_directory_path() / fmt::format("shoal-{}", ::getpid());
  const fs::path file = given ? fs::path(argv[2]) : folder / "model.pt";
  if (!given) {
    fs::create_directory(folder);
    save_model(file);
    for (int i = 0; i < 60; ++i)
      shoal::write_png(at::full({3, 32, 48}, 20 * (i % 10), at::kByte), folder / fmt::format("{:03}.png", i));
  }
  std::vector<fs::path> pictures;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".png" || entry.path().extension() == ".jpg") pictures.push_back(entry.path());
  std::sort(pictures.begin(), pictures.end());

  const shoal::SharedScriptModule model = shoal::load_shared(file.string());
  int right = 0, unreadable = 0, number = 0;
  {
    // One thread a worker: the workers are what runs in parallel.
    shoal::Pool pool({.num_threads = 1}, use_model, model);
    for (const Answer& answer : pool.imap({.chunksize = 4}, classify, pictures)) {
      if (given)
        fmt::print("{} {}\n", pictures[number].string(), answer.best ? std::to_string(*answer.best) : answer.error);
      unreadable += !answer.best;
      right += answer.best == number % 10;
      ++number;
    }
  }
  if (given) return unreadable > 0;
  fs::remove_all(folder);
  fmt::print("{} of {} pictures right\n", right, number);
  return right == 60 && number == 60 ? 0 : 1;
}
