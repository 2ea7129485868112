// Data sets for tests of the data loader, and what its batches hold.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <shoal/workers/data/data_loader.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

using shoal::DataLoader;
using shoal::DataLoaderOptions;
using shoal::DistributedSampler;
using shoal::Example;

namespace {

// Sample i is i: what is read one by one and collated.
struct Numbers {
  std::int64_t count = 0;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const { return at::full({2}, index, at::kLong); }
};

// The same from memory, a batch at a time.
[[maybe_unused]] auto rows(std::int64_t count) {
  return shoal::tensor_dataset(at::arange(count), at::arange(count * 3).reshape({count, 3}));
}

// Does something bad at one index.
struct Faulty {
  std::int64_t count = 0;
  std::int64_t index_at_fault = 0;
  std::string fault;  // "throw", "kill", "exit", "shape", "stuck"
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    if (index == index_at_fault) {
      if (fault == "throw") throw std::out_of_range("nothing to be had here");
      if (fault == "kill") ::raise(SIGKILL);
      if (fault == "exit") ::_exit(3);
      if (fault == "shape") return at::zeros({3});
      while (fault == "stuck") ::pause();
    }
    return at::full({1}, index, at::kLong);
  }
};

[[maybe_unused]] std::vector<std::int64_t> first_column(const at::Tensor& batch) {
  const at::Tensor column = (batch.dim() > 1 ? batch.select(1, 0) : batch).contiguous();
  const auto* values = column.const_data_ptr<std::int64_t>();
  return {values, values + column.numel()};
}

template <class Loader>
std::vector<std::vector<std::int64_t>> one_epoch(Loader& loader) {
  std::vector<std::vector<std::int64_t>> batches;
  for (auto& batch : loader) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(batch)>, at::Tensor>)
      batches.push_back(first_column(batch));
    else
      batches.push_back(first_column(batch[0]));
  }
  return batches;
}

[[maybe_unused]] std::vector<std::int64_t> flat(const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<std::int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

[[maybe_unused]] std::vector<std::int64_t> counting(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// The last answers and ends of processes come a moment after the loop that they belong to.
template <class Condition>
bool comes_true(const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition())
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

}  // namespace
