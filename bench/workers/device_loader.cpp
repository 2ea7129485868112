// How much of the copying to a GPU lies beside the kernels of the loop? Batches of a data loader are copied to the GPU, and the
// loop computes on each; the loop alone and the copies alone beside it. The peer is torch.utils.data with pin_memory and
// non_blocking. Prints "no GPU" where there is none.
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/runtime/init.h>
#include <shoal/workers/data/data_loader.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

constexpr std::int64_t kBatch = 64, kBatches = 60;
constexpr int kRounds = 7;

/// Pictures of one size, in memory.
struct Pictures {
  at::Tensor pictures = at::full({256, 3, 224, 224}, 0.5f);
  std::int64_t size() const { return kBatch * kBatches; }
  at::Tensor get(std::int64_t index) const { return pictures[index % pictures.size(0)]; }
};

/// Work of the loop on a batch: it reads all of it, and multiplies matrices.
class Work {
 public:
  Work(const at::Device& device, int products)
      : products_(products), matrix_(at::randn({4096, 4096}, at::TensorOptions(at::kFloat).device(device)).mul(1e-3)) {}
  void on(const at::Tensor& batch) {
    at::Tensor value = matrix_.add(batch.sum());
    for (int i = 0; i < products_; ++i) value = at::mm(value, matrix_);
    last_ = value;
  }
  void wait() const {
    c10::impl::VirtualGuardImpl guard(matrix_.device().type());
    guard.synchronizeStream(guard.getStream(matrix_.device()));
  }

 private:
  int products_;
  at::Tensor matrix_, last_;
};

/// Milliseconds a batch, of whole epochs.
template <class Epoch>
std::vector<double> rounds(Work& work, Epoch&& epoch) {
  std::vector<double> result;
  for (int round = 0; round <= kRounds; ++round) {
    const double took = shoal::bench::seconds([&] {
      epoch();
      work.wait();
    });
    if (round > 0) result.push_back(took * 1e3 / double(kBatches));
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  CLI::App app("batches on their way to a GPU beside the loop's kernels, beside torch.utils.data");
  bool peers = true;
  std::vector<int> workers{4}, products{0, 2, 8};
  app.add_flag("--peers,!--no-peers", peers, "run the peer too");
  app.add_option("--workers", workers, "numbers of them");
  app.add_option("--products", products, "of 4096 x 4096 matrices, that the loop computes for each batch");
  CLI11_PARSE(app, argc, argv);
  if (!shoal::find_device_memory(c10::kCUDA)) {
    std::puts("no GPU");
    return 0;
  }
  const at::Device device(c10::kCUDA, 0);
  shoal::bench::Report report("device_loader");
  const Pictures pictures;
  for (const int count : products) {
    Work work(device, count);
    const at::Tensor batch = at::full({kBatch, 3, 224, 224}, 0.5f).to(device);
    const std::string loop = std::to_string(count) + " products a batch";
    report.add("shoal", loop + ", loop alone", "ms", rounds(work, [&] {
                 for (std::int64_t i = 0; i < kBatches; ++i) work.on(batch);
               }));
    for (const int number : workers)
      for (const int ahead : {0, 1, 2}) {
        shoal::DataLoader loader({.batch_size = kBatch,
                                  .num_workers = number,
                                  .pin_memory = true,
                                  .to_device = device,
                                  .copies_ahead = ahead},
                                 pictures);
        report.add(ahead == 2 ? "shoal" : "shoal, copies_ahead = " + std::to_string(ahead),
                   loop + ", " + std::to_string(number) + " workers", "ms", rounds(work, [&] {
                     for (const at::Tensor& here : loader) work.on(here);
                   }));
      }
  }
  // What the wire gives: one pinned buffer, again and again.
  Work none(device, 0);
  shoal::DataLoader loader({.batch_size = kBatch, .num_workers = 1, .pin_memory = true}, pictures);
  for (const at::Tensor& pinned : loader) {
    at::Tensor there = at::zeros(pinned.sizes(), pinned.options().device(device));
    report.add("copy alone", "a batch of " + std::to_string(pinned.nbytes() >> 20) + " MiB", "ms", rounds(none, [&] {
                 for (std::int64_t i = 0; i < kBatches; ++i) there.copy_(pinned, /*non_blocking=*/true);
               }));
    break;
  }
  if (peers) {
    std::vector<std::string> arguments{"--workers"};
    for (const int number : workers) arguments.push_back(std::to_string(number));
    arguments.emplace_back("--products");
    for (const int count : products) arguments.push_back(std::to_string(count));
    report.run_peer("workers/device_loader", arguments);
  }
  return 0;
}
