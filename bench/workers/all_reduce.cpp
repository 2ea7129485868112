// How long does an all-reduce take between two ranks? Through the process group, as libtorch calls it; the
// peers are Gloo (torch.distributed) and memcpy of as many bytes as an all-reduce has to read and write.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/train/process_group.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "bench/report/report.h"

namespace {

using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

constexpr int kRanks = 2;

/// As many calls for a size in the peer.
int calls_for(std::int64_t bytes) { return int(std::clamp<std::int64_t>((2ll << 30) / bytes, 50, 5000)); }

at::Tensor make(std::int64_t bytes, bool shared) {
  at::Tensor tensor = shared ? shoal::empty_shared({bytes / 4}) : at::empty({bytes / 4});
  return tensor.fill_(1);
}

/// What each call took on this rank, in us. With `copies`, memcpy in place of the all-reduce: of two ranks,
/// each reads its half of both tensors and writes both, which is as many bytes as one tensor has.
std::vector<double> measure(int rank, shoal::ShmGroup group, std::int64_t bytes, bool shared, bool copies) {
  at::set_num_threads(1);
  auto process_group = shoal::init_process_group(group, rank);
  at::Tensor tensor = make(bytes, shared), target = make(bytes, shared);
  std::vector<at::Tensor> tensors{tensor};
  std::vector<double> samples;
  const int calls = calls_for(bytes);
  for (int i = -calls / 5 - 2; i < calls; ++i) {
    if (copies) process_group->barrier()->wait();  // both at once
    auto start = Clock::now();
    if (copies)
      std::memcpy(target.data_ptr(), tensor.data_ptr(), std::size_t(bytes));
    else
      process_group->allreduce(tensors)->wait();
    double took = Micros(Clock::now() - start).count();
    if (i >= 0) samples.push_back(took);
    if (i % 16 == 0) tensor.fill_(1);  // sums must not grow to infinity
  }
  return samples;
}

}  // namespace

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  shoal::bench::Report report("all_reduce");
  for (bool shared : {true, false})
    for (auto [bytes, name] :
         {std::pair{1ll << 10, "1 KiB"}, {256ll << 10, "256 KiB"}, {4ll << 20, "4 MiB"}, {32ll << 20, "32 MiB"}}) {
      const std::string case_name = fmt::format("2 ranks, {} of floats, {}", name, shared ? "in the heap" : "private");
      for (bool copies : {false, true}) {
        auto samples =
            shoal::spawn({.nprocs = kRanks, .num_threads = 1}, measure, shoal::ShmGroup(kRanks), bytes, shared, copies);
        report.add_quantile(copies ? "memcpy" : "shoal", case_name, "us", samples[0], 50);
      }
    }
  report.run_peer("workers/all_reduce");
}
