// A bucket of gradients as libtorch's Reducer makes them, without a Reducer.
#pragma once

#include <ATen/Functions.h>
#include <shoal/workers/train/comm_hook.h>

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

namespace shoal::test {

/// Zeros at first; the gradients lie side by side, in any order of the parameters.
struct MadeBucket {
  MadeBucket(GradBucket::Place place, std::size_t buckets, const std::vector<at::Tensor>& parameters) {
    std::vector<std::size_t> offsets, lengths;
    std::vector<c10::IntArrayRef> sizes;
    std::size_t elements = 0;
    for (const at::Tensor& parameter : parameters) {
      offsets.push_back(elements);
      lengths.push_back(std::size_t(parameter.numel()));
      sizes.push_back(parameter.sizes());
      elements += std::size_t(parameter.numel());
    }
    place.is_last = place.index + 1 == buckets;
    reducers = std::make_unique<c10d::GradBucket>(
        place.index, buckets, at::zeros({std::int64_t(elements)}, parameters[0].options().requires_grad(false)),
        offsets, lengths, sizes, parameters, std::nullopt);
    bucket = std::make_unique<GradBucket>(*reducers, place);
  }
  GradBucket& operator*() const { return *bucket; }
  const at::Tensor& buffer() const { return bucket->buffer(); }

  std::unique_ptr<c10d::GradBucket> reducers;
  std::unique_ptr<GradBucket> bucket;
};

}  // namespace shoal::test
