#include <shoal/workers/datasets/subset.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace shoal::detail {

at::Tensor checked_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  at::Tensor checked = at::empty({std::int64_t(indices.size())}, at::TensorOptions(at::kLong));
  for (const std::int64_t index : indices) check_dataset_index(index, size);
  if (!indices.empty()) std::memcpy(checked.mutable_data_ptr(), indices.data(), indices.size_bytes());
  return checked;
}

std::vector<at::Tensor> split_indices(std::int64_t size, std::span<const std::int64_t> lengths, std::uint64_t seed) {
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0) throw std::invalid_argument(fmt::format("random_split: a part of {} samples", length));
    sum += length;
  }
  if (sum != size || lengths.empty()) {
    throw std::invalid_argument(
        fmt::format("random_split: lengths [{}] add up to {}, the data set has {} samples; they have to be equal (or "
                    "give fractions that add up to 1)",
                    fmt::join(lengths, ", "), sum, size));
  }
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor permutation = at::randperm(size, generator, at::TensorOptions(at::kLong));
  std::vector<at::Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    parts.push_back(permutation.narrow(0, start, length));
    start += length;
  }
  return parts;
}

std::vector<at::Tensor> split_indices(std::int64_t size, std::span<const double> fractions, std::uint64_t seed) {
  constexpr double kRounding = 1e-9;  // math.isclose's, as torch takes it
  double sum = 0;
  std::vector<std::int64_t> lengths;
  for (const double fraction : fractions) {
    if (!(fraction >= 0 && fraction <= 1)) {
      throw std::invalid_argument(fmt::format("random_split: a fraction of {}; it is from 0 to 1", fraction));
    }
    sum += fraction;
    lengths.push_back(std::int64_t(std::floor(double(size) * fraction)));
  }
  if (lengths.empty() || std::abs(sum - 1) > kRounding) {
    throw std::invalid_argument(
        fmt::format("random_split: fractions [{}] add up to {}; it has to be 1", fmt::join(fractions, ", "), sum));
  }
  std::int64_t left = size - std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; --left, i = (i + 1) % lengths.size()) ++lengths[i];
  return split_indices(size, std::span<const std::int64_t>(lengths), seed);
}

}  // namespace shoal::detail
