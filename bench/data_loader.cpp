// How many samples a second does a data loader give, from memory, with workers and without? Beside torch.utils.data,
// and a bare copy of the same bytes. And how long until the first batch of an epoch.
#include <shoal/runtime/init.h>
#include <shoal/workers/data/data_loader.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kBatch = 32;

/// Samples one by one, as most data sets have them.
struct Images {
  at::Tensor images;
  std::int64_t size() const { return images.size(0); }
  at::Tensor get(std::int64_t index) const { return images[index]; }
};

struct Case {
  const char* name;
  std::vector<std::int64_t> shape;
  at::ScalarType type;
};

/// Samples a second of whole epochs, after one that starts the workers.
template <class Dataset>
std::vector<double> rates(const Dataset& dataset, int workers) {
  shoal::DataLoader loader({.batch_size = kBatch, .num_workers = workers}, dataset);
  std::vector<double> result;
  for (int round = 0; round <= kRounds; ++round) {
    std::int64_t samples = 0;
    const double took = shoal::bench::seconds([&] {
      for (auto& batch : loader) {
        if constexpr (requires { batch.size(0); })
          samples += batch.size(0);
        else
          samples += batch[0].size(0);
      }
    });
    if (round > 0) result.push_back(double(samples) / took);
  }
  return result;
}

/// A copy of each batch's rows into one of a few buffers: what cannot be avoided.
std::vector<double> copies(const at::Tensor& images) {
  const std::size_t row = std::size_t(images.nbytes()) / std::size_t(images.size(0));
  std::vector<at::Tensor> buffers;
  for (int i = 0; i < 6; ++i) buffers.push_back(at::zeros({std::int64_t(row * kBatch)}, at::kByte));
  std::vector<double> result;
  for (int round = 0; round <= kRounds; ++round) {
    const auto* from = static_cast<const std::byte*>(images.const_data_ptr());
    const std::int64_t batches = images.size(0) / kBatch;
    const double took = shoal::bench::seconds([&] {
      for (std::int64_t i = 0; i < batches; ++i)
        std::memcpy(buffers[std::size_t(i) % buffers.size()].mutable_data_ptr(), from + std::size_t(i * kBatch) * row,
                    row * kBatch);
    });
    if (round > 0) result.push_back(double(batches * kBatch) / took);
  }
  return result;
}

/// From begin() to its return, with workers that run.
std::vector<double> first_batches(const Images& dataset) {
  shoal::DataLoader loader({.batch_size = kBatch, .num_workers = 2}, dataset);
  std::vector<double> result;
  for (int epoch = 0; epoch < 30; ++epoch) {
    double took = 0;
    {
      std::optional<shoal::DataLoader<Images>::Iterator> it;
      took = shoal::bench::seconds([&] { it.emplace(loader.begin()); });
    }
    if (epoch > 0) result.push_back(took * 1e3);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("data_loader");
  const std::vector<Case> cases{{"uint8 3x224x224", {2048, 3, 224, 224}, at::kByte},
                                {"float 28x28", {60'000, 28, 28}, at::kFloat}};
  for (const Case& one : cases) {
    const at::Tensor images = at::zeros(one.shape, one.type);
    const std::string name = one.name;
    for (const int workers : {0, 1, 2}) {
      const std::string case_name = name + ", " + std::to_string(workers) + " workers";
      report.add("shoal", case_name, "1/s", rates(Images{images}, workers));
      report.add("shoal", case_name + ", batches read at once", "1/s", rates(shoal::tensor_dataset(images), workers));
    }
    report.add("memcpy", name + ", 2 workers", "1/s", copies(images));
  }
  report.add("shoal", "first batch of a later epoch, uint8 3x224x224", "ms",
             first_batches(Images{at::zeros({512, 3, 224, 224}, at::kByte)}));
  report.run_peer("data_loader");
  const std::string kTorch = "torch.utils.data";
  report.ask("uint8 3x224x224, 2 workers", "median", kTorch, 8);
  report.ask("uint8 3x224x224, 2 workers", "median", "memcpy", 0.85);
  report.ask("float 28x28, 2 workers", "median", kTorch, 10);
  report.ask_value("first batch of a later epoch, uint8 3x224x224", "median", 5);
}
