// How long does a step wait for its checkpoint? Parameters and Adam's state of a transformer's layers: save_async(), whose
// process writes to /dev/shm meanwhile, beside one memcpy of as many bytes between buffers that are there, the same bytes
// tensor by tensor, save(), which waits for the disk, and torch::save of the same.
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/checkpoint/checkpoints.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

constexpr int kRounds = 15;

torch::nn::Sequential layers(int count, std::int64_t width) {
  torch::nn::Sequential net;
  for (int i = 0; i < count; ++i) {
    net->push_back(torch::nn::Linear(width, 3 * width));
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    net->push_back(torch::nn::Linear(width, 4 * width));
    net->push_back(torch::nn::Linear(4 * width, width));
    net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  return net;
}

void measure(shoal::bench::Report& report, int count, std::int64_t width) {
  torch::nn::Sequential net = layers(count, width);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(1e-3));
  std::size_t bytes = 0;
  for (at::Tensor& parameter : net->parameters()) {
    parameter.mutable_grad() = torch::full_like(parameter.detach(), 0.1);
    bytes += 3 * parameter.nbytes();
  }
  adam.step();
  const std::string what = fmt::format("{} MB of parameters and Adam's state", bytes / 1'000'000);
  const std::filesystem::path folder = fmt::format("/dev/shm/checkpoint-bench-{}", ::getpid());
  std::vector<double> stalls, copies, pieces, saves, torch_saves;
  {
    shoal::CheckpointParts parts;
    parts.add("model", net);
    parts.add("optimizer", adam, *net);
    shoal::Checkpoints checkpoints({.folder = folder, .keep = 1, .saves_in_flight = 1});
    std::vector<std::byte> from(bytes, std::byte(1)), to(bytes, std::byte(2));
    std::vector<at::Tensor> sources;
    for (const at::Tensor& parameter : net->parameters())
      for (int i = 0; i < 3; ++i) sources.push_back(torch::full_like(parameter.detach(), i));
    checkpoints.save_async(0, parts);  // starts the writer, touches the memory
    for (int round = 1; round <= kRounds; ++round) {
      checkpoints.wait();
      copies.push_back(1000 * shoal::bench::seconds([&] { std::memcpy(to.data(), from.data(), bytes); }));
      pieces.push_back(1000 * shoal::bench::seconds([&] {
                         std::size_t at = 0;
                         for (const at::Tensor& source : sources) {
                           std::memcpy(to.data() + at, source.const_data_ptr(), source.nbytes());
                           at += source.nbytes();
                         }
                       }));
      stalls.push_back(1000 * shoal::bench::seconds([&] { checkpoints.save_async(round, parts); }));
    }
    checkpoints.wait();
    for (int round = 0; round < 3; ++round) {
      saves.push_back(1000 * shoal::bench::seconds([&] { checkpoints.save(100 + round, parts); }));
      torch_saves.push_back(1000 * shoal::bench::seconds([&] {
                              torch::serialize::OutputArchive archive;
                              net->save(archive);
                              adam.save(archive);
                              archive.save_to((folder / "torch.pt").native());
                            }));
    }
  }
  std::filesystem::remove_all(folder);
  report.add("shoal save_async", what, "ms", stalls);
  report.add("one memcpy", what, "ms", copies);
  report.add("a memcpy for each tensor", what, "ms", pieces);
  report.add("shoal save", what + ", on disk", "ms", saves);
  report.add("torch::save", what + ", on disk", "ms", torch_saves);
  report.ask(what, "median", "one memcpy", 1 / 1.3);
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  at::set_num_threads(1);
  shoal::bench::Report report("checkpoint");
  measure(report, 3, 512);
  measure(report, 2, 1024);
}
