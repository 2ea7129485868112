// mix_up and cut_mix: a batch's pictures mixed with one another, and their labels with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/data/sample_random.h>

#include <cstdint>

namespace shoal {

/// How a batch is mixed.
struct MixOptions {
  double alpha = 1;               ///< of Beta(alpha, alpha), from which the share is drawn; above 0
  std::int64_t num_classes = -1;  ///< -1: labels are shares of classes already, floating-point [n, classes]
};

/// A batch that was mixed: new tensors on the devices of the old ones.
struct MixedBatch {
  at::Tensor images;  ///< as the batch's
  at::Tensor labels;  ///< [n, classes], shares that add up to 1: what torch::nn::CrossEntropyLoss takes
};

/// Each picture mixed with the one before it in the batch, the first one with the last: l * own + (1 - l) * other, with one
/// l from Beta(alpha, alpha) for the batch (Zhang and others 2018, "mixup"; torchvision.transforms.v2.MixUp). For any
/// batch: behind a loader, or in its collate function. Of .beton files ImageMixup does it in the pipeline.
///
/// `images`: floating-point [n, ...]. `labels`: int64 [n] from 0 to num_classes - 1, or shares. `key`: what the draw depends
/// on, say {seed, epoch, number of the batch}. Throws std::invalid_argument, which names the value.
MixedBatch mix_up(const at::Tensor& images, const at::Tensor& labels, const MixOptions& options, const SampleKey& key);

/// Each picture with a part of the one before it in the same place: of the share 1 - l of its area, cut off at the edges
/// (Yun and others 2019, "CutMix"; torchvision.transforms.v2.CutMix). Labels have the shares of the pixels. As mix_up();
/// `images`: of any type, [n, channels, height, width].
MixedBatch cut_mix(const at::Tensor& images, const at::Tensor& labels, const MixOptions& options, const SampleKey& key);

}  // namespace shoal
