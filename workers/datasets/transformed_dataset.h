// A data set whose pictures go through transforms.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/workers/data/collate.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/transforms/compose.h>

namespace shoal {
namespace transforming {

/// The picture in a sample, or the pictures in a batch: the tensor itself, the member `data`, or the first element.
template <class Sample>
at::Tensor& picture_of(Sample& sample) {
  if constexpr (std::same_as<Sample, at::Tensor>) {
    return sample;
  } else if constexpr (requires {
                         { sample.data } -> std::same_as<at::Tensor&>;
                       }) {
    return sample.data;
  } else {
    return picture_of(std::get<0>(sample));
  }
}

}  // namespace transforming

/// The samples of `dataset` with their pictures transformed, keyed by this thread's EpochScope and the sample's index
/// in this data set. What a sample's picture is: the sample, where it is a tensor; its member `data` (Example); its
/// first element (pair, tuple, array). A batch is made straight from the samples into one tensor, also where the
/// pictures differ in size before the transforms (an ImageFolder). A plain aggregate: crosses where the data set does.
template <MapDataset D, ImageTransform T>
struct TransformedDataset {
  D dataset;
  T transform;

  [[nodiscard]] std::int64_t size() { return dataset_size(dataset); }

  [[nodiscard]] auto get(std::int64_t index) {
    auto sample = dataset.get(index);
    at::Tensor& picture = transforming::picture_of(sample);
    picture = transform_image(transform, picture, sample_key(index));
    return sample;
  }

  [[nodiscard]] auto get_batch(std::span<const std::int64_t> indices)
    requires Collatable<SampleOf<D>> && (transforming::Parts<T>::kHasBytes)
  {
    if (indices.empty()) throw std::invalid_argument("TransformedDataset: no indices; a batch has at least one sample");
    const auto count = std::int64_t(indices.size());
    const at::Tensor nothing = at::empty({0}, at::TensorOptions(at::kByte));
    std::vector<SampleOf<D>> samples;
    samples.reserve(indices.size());
    at::Tensor pictures;
    ImageShape shape;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = indices[std::size_t(i)];
      at::Tensor& picture = transforming::picture_of(samples.emplace_back(dataset.get(index)));
      const ImageShape after = transforming::output_shape(transform, transforming::shape_of_image(picture));
      if (i == 0) {
        shape = after;
        pictures = at::empty({count, shape.channels, shape.height, shape.width}, at::TensorOptions(at::kByte));
      } else if (after != shape) {
        throw std::invalid_argument(fmt::format(
            "TransformedDataset: sample {} is [{}, {}, {}] after its transforms, sample {} [{}, {}, {}]; end them with "
            "one that makes all sizes equal (RandomResizedCrop, Resize to {{h, w}}, CenterCrop)",
            indices[0], shape.channels, shape.height, shape.width, index, after.channels, after.height, after.width));
      }
      transform_into(transform, picture, sample_key(index),
                     pictures.mutable_data_ptr<std::uint8_t>() + std::size_t(i) * shape.bytes());
      picture = nothing;  // the rest is collated as ever
    }
    auto batch = collate(samples);
    transforming::picture_of(batch) = transforming::apply_tensors(transform, std::move(pictures));
    return batch;
  }
};

/// transformed(image_folder("train"), Compose{RandomResizedCrop{.size = {224}}, RandomHorizontalFlip{}})
template <MapDataset D, ImageTransform T>
TransformedDataset<D, T> transformed(D dataset, T transform) {
  return {std::move(dataset), std::move(transform)};
}

}  // namespace shoal
