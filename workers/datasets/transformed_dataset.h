// A data set whose pictures go through transforms.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/workers/data/collate.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/transforms/compose.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace shoal {
namespace detail {

/// The picture in a sample, or the pictures in a batch: the tensor itself, the member `data` or `image`, or the first
/// element.
template <class Sample>
at::Tensor& picture_of(Sample& sample) {
  if constexpr (std::same_as<Sample, at::Tensor>) {
    return sample;
  } else if constexpr (requires {
                         { sample.data } -> std::same_as<at::Tensor&>;
                       }) {
    return sample.data;
  } else if constexpr (requires {
                         { sample.image } -> std::same_as<at::Tensor&>;
                       }) {
    return sample.image;
  } else {
    return picture_of(std::get<0>(sample));
  }
}

/// The mask in a sample, or the masks in a batch: the member `target`, or the second element.
template <class Sample>
at::Tensor& mask_of(Sample& sample) {
  if constexpr (requires {
                  { sample.target } -> std::same_as<at::Tensor&>;
                }) {
    return sample.target;
  } else {
    static_assert(std::same_as<std::tuple_element_t<1, Sample>, at::Tensor>,
                  "shoal: transformed_jointly: the mask is a sample's member `target` or its second element, a tensor");
    return std::get<1>(sample);
  }
}

/// Makes one tensor of masks that come one by one and have to be equal in type and shape.
class MaskBatch {
 public:
  explicit MaskBatch(std::int64_t count) : count_(count) {}
  void put(std::int64_t i, const at::Tensor& mask) {
    if (i == 0) {
      std::vector<std::int64_t> sizes = mask.sizes().vec();
      sizes.insert(sizes.begin(), count_);
      masks_ = at::empty(sizes, mask.options());
    } else if (mask.sizes() != masks_.sizes().slice(1) || mask.scalar_type() != masks_.scalar_type()) {
      throw std::invalid_argument(
          fmt::format("TransformedDataset: a mask is {} {} after its transforms, the first one of its batch {} {}",
                      c10::toString(mask.scalar_type()), mask.sizes().vec(), c10::toString(masks_.scalar_type()),
                      masks_.sizes().slice(1).vec()));
    }
    masks_.select(0, i).copy_(mask);
  }
  at::Tensor take() { return std::move(masks_); }

 private:
  std::int64_t count_;
  at::Tensor masks_;
};

}  // namespace detail

/// What a TransformedDataset transforms of a sample.
enum class Transformed : std::uint8_t { picture, picture_and_mask };

/// The samples of `dataset` with their pictures transformed. The random draws depend on this thread's EpochScope and
/// the sample's index in this data set.
///
/// - A sample's picture is the sample itself if that is a tensor, otherwise its member `data` (Example) or `image`, or its first
///   element (pair, tuple, array).
/// - With picture_and_mask the sample's mask (its member `target`, or its second element) goes through the same draws:
///   see transform_mask().
/// - A batch is made straight from the samples into one tensor, even if the pictures differ in size before the
///   transforms (an ImageFolder).
///
/// A plain aggregate: it crosses if the data set does.
template <MapDataset D, ImageTransform T, Transformed kWhat = Transformed::picture>
struct TransformedDataset {
  D dataset;    ///< whose samples they are
  T transform;  ///< what their pictures go through

  std::int64_t size() { return dataset_size(dataset); }  ///< samples of the data set

  /// The data set's sample with its picture (and mask) transformed. Throws what both throw.
  auto get(std::int64_t index) {
    auto sample = dataset.get(index);
    at::Tensor& picture = detail::picture_of(sample);
    if constexpr (kWhat == Transformed::picture_and_mask) {
      at::Tensor& mask = detail::mask_of(sample);
      if (detail::has_bytes(transform))
        mask = transform_mask(transform, mask, detail::shape_of_image(picture), sample_key(index));
    }
    picture = transform_image(transform, picture, sample_key(index));
    return sample;
  }

  /// The batch of these samples, in new tensors. Throws std::invalid_argument for no indices, and what both throw.
  auto get_batch(std::span<const std::int64_t> indices)
    requires Collatable<SampleOf<D>> && (detail::Parts<T>::kHasBytes)
  {
    if (indices.empty()) throw std::invalid_argument("TransformedDataset: no indices; a batch has at least one sample");
    std::vector<SampleOf<D>> samples;
    samples.reserve(indices.size());
    if (!detail::has_bytes(transform)) {  // a list's steps: pictures of any type
      for (const std::int64_t index : indices) samples.push_back(dataset.get(index));
      auto batch = collate(samples);
      detail::picture_of(batch) = detail::apply_tensors(transform, detail::picture_of(batch));
      return batch;
    }
    const auto count = std::int64_t(indices.size());
    const at::Tensor nothing = at::empty({0}, at::TensorOptions(at::kByte));
    at::Tensor pictures;
    [[maybe_unused]] detail::MaskBatch masks(count);
    ImageShape shape;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = indices[std::size_t(i)];
      at::Tensor& picture = detail::picture_of(samples.emplace_back(dataset.get(index)));
      const ImageShape after = detail::output_shape(transform, detail::shape_of_image(picture));
      if (i == 0) {
        shape = after;
        pictures = at::empty({count, shape.channels, shape.height, shape.width}, at::TensorOptions(at::kByte));
      } else if (after != shape) {
        throw std::invalid_argument(fmt::format(
            "TransformedDataset: sample {} is [{}, {}, {}] after its transforms, sample {} [{}, {}, {}]; end them with "
            "one that makes all sizes equal (RandomResizedCrop, Resize to {{h, w}}, CenterCrop)",
            indices[0], shape.channels, shape.height, shape.width, index, after.channels, after.height, after.width));
      }
      if constexpr (kWhat == Transformed::picture_and_mask) {
        at::Tensor& mask = detail::mask_of(samples.back());
        masks.put(i, transform_mask(transform, mask, detail::shape_of_image(picture), sample_key(index)));
        mask = nothing;
      }
      transform_into(transform, picture, sample_key(index),
                     pictures.mutable_data_ptr<std::uint8_t>() + std::size_t(i) * shape.bytes());
      picture = nothing;  // the rest is collated as usual
    }
    auto batch = collate(samples);
    detail::picture_of(batch) = detail::apply_tensors(transform, std::move(pictures));
    if constexpr (kWhat == Transformed::picture_and_mask) detail::mask_of(batch) = masks.take();
    return batch;
  }
};

/// Makes a TransformedDataset:
///
///   transformed(image_folder("train"), Compose{RandomResizedCrop{.size = {224}}, RandomHorizontalFlip{}})
template <MapDataset D, ImageTransform T>
TransformedDataset<D, T> transformed(D dataset, T transform) {
  return {std::move(dataset), std::move(transform)};
}

/// Like transformed(), for pictures with masks:
///
///   transformed_jointly(segmentation, Compose{RandomCrop{.size = {256}, .mask_fill = 255}, RandomHorizontalFlip{},
///                                             ColorJitter{...}, Normalize{...}})
template <MapDataset D, ImageTransform T>
TransformedDataset<D, T, Transformed::picture_and_mask> transformed_jointly(D dataset, T transform) {
  return {std::move(dataset), std::move(transform)};
}

}  // namespace shoal
