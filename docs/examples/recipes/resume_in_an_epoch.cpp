// A training that is killed in the middle of an epoch and goes on from its last checkpoint, with another number of
// loader workers: in the end it has the same weights, bit for bit, as one that was never disturbed.
//
//     resume_in_an_epoch [SAMPLES]      2000 unless said otherwise
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/runtime/failure.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/process.h>
#include <shoal/tensors/codec.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/dataset.h>
#include <signal.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fs = std::filesystem;

constexpr int kEpochs = 2;

struct Job {
  shoal::TensorDataset<2> data;
  fs::path checkpoint;
  int workers;
  int dies_after;  // steps; 0: it does not
};

// What a run needs to go on: the weights (an optimizer's state likewise), and where the loader is.
struct State {
  at::Tensor weights;
  std::string loader;
};

// Written beside its place and moved there: a reader finds the old one or the new one, never half of it.
void save(const fs::path& path, const State& state) {
  const std::vector<char> bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(state.weights, state.loader));
  const fs::path beside = path.string() + ".part";
  std::ofstream(beside, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
  fs::rename(beside, path);
}

State load(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const c10::IValue value = torch::jit::pickle_load(bytes);
  return {value.toTuple()->elements()[0].toTensor(), value.toTuple()->elements()[1].toStringRef()};
}

at::Tensor train(Job job) {
  at::Tensor weights = at::zeros({8});
  shoal::DataLoader loader({.batch_size = 16, .shuffle = true, .num_workers = job.workers, .seed = 1}, job.data);
  std::int64_t epoch = 0;
  if (fs::exists(job.checkpoint)) {
    const State state = load(job.checkpoint);
    weights.copy_(state.weights);
    const auto place = shoal::LoaderState::from_string(state.loader);
    loader.load_state_dict(place);
    epoch = place.epoch;
  }
  int steps = 0;
  for (; epoch < kEpochs; ++epoch)
    for (auto& [inputs, targets] : loader) {  // the first of these loops is what was left of its epoch
      const at::Tensor errors = inputs.mv(weights) - targets;
      weights -= 0.1 * inputs.t().mv(errors) / inputs.size(0);
      if (++steps % 10 == 0) save(job.checkpoint, {weights, loader.state_dict().to_string()});
      if (steps == job.dies_after) ::raise(SIGKILL);
    }
  return weights;
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const std::int64_t samples = argc > 1 ? std::stoll(argv[1]) : 2000;
  const fs::path folder = fs::temp_directory_path() / fmt::format("shoal-{}", ::getpid());
  fs::create_directory(folder);
  const at::Tensor inputs = at::rand({samples, 8});
  const auto data = shoal::tensor_dataset(inputs, inputs.sum(1));

  shoal::Process undisturbed({}, train, Job{data, folder / "undisturbed", 2, 0});
  undisturbed.start();
  const at::Tensor expected = undisturbed.result();

  // Five steps after its last checkpoint: these are done again, from the same weights with the same samples.
  const int dies_after = int(samples / 16 / 20 * 10 + 5);
  bool died = false;
  shoal::Process killed({}, train, Job{data, folder / "killed", 2, dies_after});
  killed.start();
  try {
    killed.result();
  } catch (const shoal::ProcessExited& end) {
    died = end.signal() == SIGKILL;
  }
  shoal::Process resumed({}, train, Job{data, folder / "killed", 1, 0});
  resumed.start();
  const at::Tensor weights = resumed.result();
  fs::remove_all(folder);

  const bool same = weights.equal(expected);
  fmt::print("killed after step {}, gone on with another number of workers: {} weights\n", dies_after,
             same ? "the same" : "other");
  return died && same ? 0 : 1;
}
