// How many samples a second does a data loader give: from memory, from files, of one length and of many, with workers
// and without? How long until the first batch of an epoch? Beside torch.utils.data, and a bare copy of the same bytes.
#include <shoal/workers/data/data_loader.h>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/data/pad_sequence.h>
#include <shoal/workers/images/decode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/pictures/pictures.h"
#include "bench/report/report.h"
#include "tests/support/temporary_folder.h"

namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kBatch = 32;
constexpr int kWorkers[] = {0, 1, 2, 4};
const std::string kTorch = "torch.utils.data";

/// Samples one by one, as most data sets have them.
struct Images {
  at::Tensor images;
  std::int64_t size() const { return images.size(0); }
  at::Tensor get(std::int64_t index) const { return images[index]; }
};

/// 0.jpg, 1.jpg, ... read and decoded.
struct Pictures {
  std::string folder;
  std::int64_t count;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const { return shoal::read_image(folder + "/" + std::to_string(index) + ".jpg"); }
};

/// Texts of 20 to 199 tokens, as the peer has them.
struct Texts {
  std::int64_t count;
  std::int64_t size() const { return count; }
  shoal::Sequence get(std::int64_t index) const {
    return {at::full({20 + index * 7919 % 180}, index, at::TensorOptions(at::kLong))};
  }
};

struct Case {
  const char* name;
  std::vector<std::int64_t> shape;
  at::ScalarType type;
};

std::int64_t samples_in(const at::Tensor& batch) { return batch.size(0); }
std::int64_t samples_in(const shoal::PaddedSequences& batch) { return batch.data.size(0); }
template <class Batch>
std::int64_t samples_in(const Batch& batch) {
  return batch[0].size(0);
}

/// Samples a second of whole epochs, after one that starts the workers.
template <class Dataset>
std::vector<double> rates(const Dataset& dataset, int workers) {
  shoal::DataLoader loader({.batch_size = kBatch, .num_workers = workers}, dataset);
  std::vector<double> result;
  for (int round = 0; round <= kRounds; ++round) {
    std::int64_t samples = 0;
    const double took = shoal::bench::seconds([&] {
      for (auto& batch : loader) samples += samples_in(batch);
    });
    if (round > 0) result.push_back(double(samples) / took);
  }
  return result;
}

/// With each number of workers, under the name that the peer uses, and then the best of those with workers.
template <class Dataset>
void add_rates(shoal::bench::Report& report, const std::string& name, const Dataset& dataset) {
  std::vector<double> best;
  for (const int workers : kWorkers) {
    std::vector<double> found = rates(dataset, workers);
    report.add("shoal", name + ", " + std::to_string(workers) + " workers", "1/s", found);
    std::sort(found.begin(), found.end());
    if (workers > 0 && (best.empty() || found[found.size() / 2] > best[best.size() / 2])) best = std::move(found);
  }
  report.add("shoal", name + ", best with workers", "1/s", best);
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

/// Milliseconds from begin() to the first batch: of an epoch with workers that run, and of the first one, which starts
/// them.
struct FirstBatches {
  std::vector<double> first_epoch, later_epochs;
};
FirstBatches first_batches(const Images& dataset) {
  FirstBatches result;
  for (int loaders = 0; loaders < 10; ++loaders) {
    shoal::DataLoader loader({.batch_size = kBatch, .num_workers = 2}, dataset);
    for (int epoch = 0; epoch < 4; ++epoch) {
      std::optional<shoal::DataLoader<Images>::Iterator> it;
      const double took = shoal::bench::seconds([&] { it.emplace(loader.begin()); });
      (epoch == 0 ? result.first_epoch : result.later_epochs).push_back(took * 1e3);
    }
  }
  return result;
}

/// Milliseconds from the last batch of an epoch to the first one of the next.
std::vector<double> turn_arounds(const Images& dataset) {
  shoal::DataLoader loader({.batch_size = kBatch, .num_workers = 2}, dataset);
  std::vector<double> result;
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> last;
  for (int epoch = 0; epoch < 20; ++epoch) {
    auto it = loader.begin();
    if (last) result.push_back(std::chrono::duration<double>(Clock::now() - *last).count() * 1e3);
    for (; it != loader.end(); ++it) last = Clock::now();
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("samples a second of a data loader, beside torch.utils.data");
  bool peers = true;
  app.add_flag("--peers,!--no-peers", peers, "run the peers too");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  shoal::bench::Report report("data_loader");
  const std::vector<Case> cases{{"uint8 3x224x224", {2048, 3, 224, 224}, at::kByte},
                                {"float 28x28", {60'000, 28, 28}, at::kFloat}};
  for (const Case& one : cases) {
    const at::Tensor images = at::zeros(one.shape, one.type);
    const std::string name = one.name;
    add_rates(report, name, Images{images});
    add_rates(report, name + ", read a batch at once", shoal::tensor_dataset(images));
    report.add("memcpy", name + ", best with workers", "1/s", copies(images));
  }
  const shoal::test::TemporaryFolder folder;
  const auto pictures = std::int64_t(shoal::bench::make_pictures(folder.path(), 1024, 256, 256).size());
  add_rates(report, "JPEG 256x256", Pictures{folder.path(), pictures});
  add_rates(report, "texts of 20 to 199 tokens", Texts{20'000});
  const std::string first = "first batch of the first epoch, uint8 3x224x224";
  const std::string later = "first batch of a later epoch, uint8 3x224x224";
  const std::string turn = "from an epoch's last batch to the next one's first, uint8 3x224x224";
  const Images images{at::zeros({512, 3, 224, 224}, at::kByte)};
  FirstBatches firsts = first_batches(images);
  report.add("shoal", first, "ms", std::move(firsts.first_epoch));
  report.add("shoal", later, "ms", std::move(firsts.later_epochs));
  report.add("shoal", turn, "ms", turn_arounds(images));
  if (peers) report.run_peer("workers/data_loader", {folder.path()});
  report.ask("uint8 3x224x224, best with workers", "median", kTorch, 8);
  report.ask("uint8 3x224x224, best with workers", "median", "memcpy", 0.85);
  report.ask("float 28x28, best with workers", "median", kTorch, 10);
  report.ask("JPEG 256x256, 2 workers", "median", kTorch, 3);
  report.ask("texts of 20 to 199 tokens, best with workers", "median", kTorch, 1);
  report.ask_value(later, "median", 5);
  report.ask(first, "median", kTorch, 1);
}
