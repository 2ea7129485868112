// Evaluation by several ranks that counts every sample once: the sum of their results is what one process would get,
// even if the samples do not divide by ranks and batch size.
//
//     exact_evaluation [SAMPLES]      10007 unless said otherwise
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/sampler.h>
#include <shoal/workers/train/shm_group.h>
#include <shoal/workers/train/tensor_collectives.h>

#include <string>
#include <vector>

using Data = shoal::TensorDataset<2>;

// The model: says whether a number divides by 3.
at::Tensor answers_to(const at::Tensor& numbers) { return numbers.remainder(3) == 0; }

// int64 [2]: right answers, and samples seen.
at::Tensor count(const Data& data, const shoal::EvaluationSampler& sampler) {
  at::Tensor counts = at::zeros({2}, at::kLong);
  shoal::DataLoader loader({.batch_size = 64, .num_workers = 1}, data, sampler);
  for (auto& [numbers, labels] : loader) {
    counts[0] += (answers_to(numbers) == labels).sum();
    counts[1] += numbers.size(0);
  }
  return counts;
}

std::vector<std::int64_t> evaluate(int rank, shoal::ShmGroup group, Data data) {
  shoal::Communicator ranks = group.join(rank);
  at::Tensor counts = count(data, {{.num_replicas = ranks.world_size(), .rank = rank}, data.size()});
  // Once, after the loop: a rank may have a batch less than the others, and would miss a collective in the loop.
  shoal::all_reduce(ranks, counts);
  return {counts[0].item<std::int64_t>(), counts[1].item<std::int64_t>()};
}

int main(int argc, char** argv) {
  shoal::init(argc, argv);
  const std::int64_t samples = argc > 1 ? std::stoll(argv[1]) : 10007;
  constexpr int kRanks = 3;
  at::Tensor numbers = at::arange(samples);
  at::Tensor labels = numbers.remainder(2) == 0;  // so the model is wrong about half of the time
  Data data = shoal::tensor_dataset(numbers, labels);
  for (at::Tensor& tensor : data.tensors) shoal::share_memory_(tensor);  // one copy for all ranks and their workers

  const at::Tensor alone = count(data, {{.num_replicas = 1, .rank = 0}, samples});
  const auto by_ranks = shoal::spawn({.nprocs = kRanks}, evaluate, shoal::ShmGroup(kRanks), data);
  bool equal = alone[1].item<std::int64_t>() == samples;
  for (const auto& counts : by_ranks)
    equal &= counts[0] == alone[0].item<std::int64_t>() && counts[1] == alone[1].item<std::int64_t>();
  fmt::print("one process: {} of {} right; each of {} ranks: {} of {}\n", alone[0].item<std::int64_t>(),
             alone[1].item<std::int64_t>(), kRanks, by_ranks[0][0], by_ranks[0][1]);
  return equal ? 0 : 1;
}
