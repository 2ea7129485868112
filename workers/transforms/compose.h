// Compose: transforms one after the other; and functions that apply transforms to pictures and batches.
#pragma once

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/workers/transforms/transform.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>

namespace shoal {

/// Steps one after the other: `Compose{RandomCrop{.size = {32}, .padding = {4}}, RandomHorizontalFlip{},
/// Normalize{...}}`. Steps that work on bytes come first: one picture goes through all of them before the next, so it
/// stays in the cache. Steps that work on tensors follow and see the whole batch. A plain aggregate; Composes nest.
template <class... Steps>
struct Compose;

/// The last step.
template <class Last>
struct Compose<Last> {
  Last first;  ///< the step
};

/// The first step and those after it.
template <class First, class... Rest>
  requires(sizeof...(Rest) > 0)
struct Compose<First, Rest...> {
  First first;            ///< the step
  Compose<Rest...> rest;  ///< the steps after it
};

template <class... Steps>
Compose(Steps...) -> Compose<Steps...>;

namespace detail {

/// A list of steps made at run time has both kinds.
template <class T>
concept StepsOfBothKinds = ByteTransform<T> && requires(const T& transform, const at::Tensor& batch) {
  { transform.on_batch(batch) } -> std::same_as<at::Tensor>;
  { transform.has_bytes() } -> std::same_as<bool>;
};

template <class T>
struct Parts {  // for a single transform
  static constexpr bool kHasBytes = ByteTransform<T>;
  static constexpr bool kHasTensors = TensorTransform<T> || StepsOfBothKinds<T>;
};
template <class First, class... Rest>
struct Parts<Compose<First, Rest...>> {
  static constexpr bool kHasBytes = Parts<First>::kHasBytes;
  static constexpr bool kHasTensors = Parts<First>::kHasTensors || (Parts<Rest>::kHasTensors || ...);
  // Once a step has made tensors, no step can work on bytes.
  static constexpr bool kInOrder = [] {
    bool tensors = false, in_order = true;
    auto step = [&]<class T>(std::type_identity<T>) {
      in_order = in_order && !(tensors && Parts<T>::kHasBytes) && (Parts<T>::kHasBytes || Parts<T>::kHasTensors);
      tensors = tensors || Parts<T>::kHasTensors;
    };
    step(std::type_identity<First>());
    (step(std::type_identity<Rest>()), ...);
    return in_order;
  }();
  static_assert(kInOrder,
                "shoal: in a Compose, transforms of bytes (crops, flips, colours) come before those that make floats "
                "(ToFloat, Normalize)");
};

template <class T>
ImageShape output_shape(const T& transform, const ImageShape& shape) {
  return transform.output(shape);
}
template <class First, class... Rest>
ImageShape output_shape(const Compose<First, Rest...>& steps, const ImageShape& shape) {
  const ImageShape after = output_shape(steps.first, shape);
  if constexpr ((Parts<Rest>::kHasBytes || ...)) {
    return output_shape(steps.rest, after);
  } else {
    return after;
  }
}

template <class T>
void apply_bytes(const T& transform, const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out,
                 const Draws& draws, std::uint64_t /*position*/, TransformScratch& scratch) {
  transform.apply(in, shape, out, draws, scratch);
}
// `position`: the place of the first of these steps in the whole Compose. A Compose in a Compose is one step of it.
template <class First, class... Rest>
void apply_bytes(const Compose<First, Rest...>& steps, const std::uint8_t* in, const ImageShape& shape,
                 std::uint8_t* out, const Draws& draws, std::uint64_t position, TransformScratch& scratch) {
  const TransformScratch::Frame frame(scratch);
  if constexpr ((Parts<Rest>::kHasBytes || ...)) {
    const ImageShape after = output_shape(steps.first, shape);
    auto* between = scratch.take<std::uint8_t>(after.bytes());
    apply_bytes(steps.first, in, shape, between, draws.of_step(position), 0, scratch);
    apply_bytes(steps.rest, between, after, out, draws, position + 1, scratch);
  } else {
    apply_bytes(steps.first, in, shape, out, draws.of_step(position), 0, scratch);
  }
}

template <class T>
void move_mask(const T& transform, const ImageShape& shape, const Draws& draws, std::uint64_t /*position*/,
               MaskSources& mask) {
  if constexpr (requires { transform.move(shape, draws, mask); }) {
    transform.move(shape, draws, mask);
  } else {
    static_assert(
        TensorTransform<T> || MaskTransform<T>,
        "shoal: this transform does not say what becomes of a mask: give it a member move(), as MaskTransform "
        "describes it, or where pixels stay in their places `static constexpr bool kKeepsPlaces = true`");
  }
}
template <class First, class... Rest>
void move_mask(const Compose<First, Rest...>& steps, const ImageShape& shape, const Draws& draws,
               std::uint64_t position, MaskSources& mask) {
  move_mask(steps.first, shape, draws.of_step(position), 0, mask);
  if constexpr ((Parts<Rest>::kHasBytes || ...)) {
    move_mask(steps.rest, output_shape(steps.first, shape), draws, position + 1, mask);
  }
}

template <class T>
bool has_bytes([[maybe_unused]] const T& transform) {
  if constexpr (StepsOfBothKinds<T>) {
    return transform.has_bytes();
  } else {
    return Parts<T>::kHasBytes;
  }
}

template <class T>
at::Tensor apply_tensors(const T& transform, at::Tensor batch) {
  if constexpr (TensorTransform<T>) {
    return transform(batch);
  } else if constexpr (StepsOfBothKinds<T>) {
    return transform.on_batch(batch);
  } else {
    return batch;
  }
}
template <class First, class... Rest>
at::Tensor apply_tensors(const Compose<First, Rest...>& steps, at::Tensor batch) {
  batch = apply_tensors(steps.first, std::move(batch));
  if constexpr (sizeof...(Rest) > 0) batch = apply_tensors(steps.rest, std::move(batch));
  return batch;
}

}  // namespace detail

/// What pictures can be transformed with: one transform, or a Compose.
template <class T>
concept ImageTransform = detail::Parts<T>::kHasBytes || detail::Parts<T>::kHasTensors;

/// Applies the byte steps of `transform` to one picture, uint8 [c, h, w], and writes into `out`, which has the right
/// shape. Allocates nothing once the thread has seen a picture of this size.
template <ImageTransform T>
void transform_into(const T& transform, const at::Tensor& image, const SampleKey& sample, std::uint8_t* out) {
  const at::Tensor in = image.contiguous();
  TransformScratch& scratch = TransformScratch::of_thread();
  const TransformScratch::Frame frame(scratch);
  detail::apply_bytes(transform, in.const_data_ptr<std::uint8_t>(), detail::shape_of_image(image), out, Draws{sample},
                      0, scratch);
}

/// Like transform_into, for a batch, uint8 [n, c, h, w], into `out`, uint8 [n, c', h', w'], contiguous. Throws
/// std::invalid_argument if `out` has another shape, or there are not as many keys as pictures.
template <ImageTransform T>
  requires(detail::Parts<T>::kHasBytes)
void transform_batch_into(const T& transform, const at::Tensor& batch, std::span<const SampleKey> samples,
                          at::Tensor& out) {
  const ImageShape shape = detail::shape_in_batch(batch);
  const ImageShape after = detail::output_shape(transform, shape);
  if (std::int64_t(samples.size()) != batch.size(0) || detail::shape_in_batch(out) != after ||
      out.size(0) != batch.size(0) || !out.is_contiguous()) {
    throw std::invalid_argument(fmt::format(
        "transform: {} pictures become [{}, {}, {}, {}], contiguous; keys of {} samples and another output were given",
        batch.size(0), batch.size(0), after.channels, after.height, after.width, samples.size()));
  }
  const at::Tensor in = batch.contiguous();
  const auto* from = in.const_data_ptr<std::uint8_t>();
  auto* to = out.mutable_data_ptr<std::uint8_t>();
  TransformScratch& scratch = TransformScratch::of_thread();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const TransformScratch::Frame frame(scratch);
    detail::apply_bytes(transform, from + i * shape.bytes(), shape, to + i * after.bytes(), Draws{samples[i]}, 0,
                        scratch);
  }
}

/// Applies all steps to a batch.
template <ImageTransform T>
at::Tensor transform_batch(const T& transform, const at::Tensor& batch, std::span<const SampleKey> samples) {
  at::Tensor result = batch;
  if constexpr (detail::Parts<T>::kHasBytes) {
    if (detail::has_bytes(transform)) {
      const ImageShape after = detail::output_shape(transform, detail::shape_in_batch(batch));
      result = at::empty({batch.size(0), after.channels, after.height, after.width}, at::TensorOptions(at::kByte));
      transform_batch_into(transform, batch, samples, result);
    }
  }
  return detail::apply_tensors(transform, result);
}

/// Applies all steps to one picture, uint8 [c, h, w].
template <ImageTransform T>
at::Tensor transform_image(const T& transform, const at::Tensor& image, const SampleKey& sample) {
  return transform_batch(transform, image.unsqueeze(0), std::span(&sample, 1)).squeeze(0);
}

/// Transforms the mask of a picture of `shape` that is transformed with the same key, so that the same draws move it.
/// Pixels are taken, not mixed (nearest); places without a pixel are filled. Colours, floats and Cutout leave it as it
/// is. `mask` is [height, width] or [channels, height, width], on the CPU, as large as the picture, of integers, bools
/// or floats.
/// Returns a new tensor; throws std::invalid_argument.
template <ImageTransform T>
at::Tensor transform_mask(const T& transform, const at::Tensor& mask, const ImageShape& shape,
                          const SampleKey& sample) {
  const at::Tensor planes = detail::mask_planes(mask, shape);
  thread_local MaskSources sources;
  sources.start({shape.height, shape.width});
  if constexpr (detail::Parts<T>::kHasBytes) {
    detail::move_mask(transform, shape, Draws{sample}, 0, sources);
  }
  at::Tensor out = at::empty({planes.size(0), sources.size().height, sources.size().width}, mask.options());
  sources.copy(planes, out);
  return mask.dim() == 2 ? out.squeeze(0) : out;
}
/// Transforms the mask of an RGB picture.
template <ImageTransform T>
at::Tensor transform_mask(const T& transform, const at::Tensor& mask, const SampleKey& sample) {
  const bool is_mask = mask.defined() && mask.dim() >= 2;
  return transform_mask(transform, mask, {3, is_mask ? mask.size(-2) : 0, is_mask ? mask.size(-1) : 0}, sample);
}

}  // namespace shoal
