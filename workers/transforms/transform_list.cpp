#include <shoal/workers/transforms/transform_list.h>

#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace shoal {
namespace {

bool is_bytes(const AnyTransform& step) {
  return std::visit([]<class T>(const T&) { return ByteTransform<T>; }, step);
}

// Calls `use` with each step that works on bytes, its place and the shape of what it gets; returns that of what comes
// out in the end.
template <class Use>
ImageShape for_bytes(const std::vector<AnyTransform>& steps, ImageShape shape, Use&& use) {
  bool floats = false;
  for (std::size_t place = 0; place < steps.size(); ++place) {
    if (!is_bytes(steps[place])) {
      floats = true;
      continue;
    }
    if (floats) {
      throw std::invalid_argument(
          "TransformList: transforms of bytes (crops, flips, colours) come before those that make floats (ToFloat, "
          "Normalize)");
    }
    shape = std::visit(
        [&]<class T>(const T& step) {
          if constexpr (ByteTransform<T>) {
            const ImageShape after = step.output(shape);
            use(step, place, shape, after);
            return after;
          } else {
            return shape;
          }
        },
        steps[place]);
  }
  return shape;
}

}  // namespace

ImageShape TransformList::output(const ImageShape& shape) const {
  return for_bytes(steps, shape, [](const auto&, std::size_t, const ImageShape&, const ImageShape&) {});
}

bool TransformList::has_bytes() const {
  for (const AnyTransform& step : steps)
    if (is_bytes(step)) return true;
  return false;
}

void TransformList::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                          TransformScratch& scratch) const {
  const TransformScratch::Frame frame(scratch);
  std::size_t left = 0;
  for (const AnyTransform& step : steps) left += is_bytes(step) ? 1 : 0;
  if (left == 0) std::memcpy(out, in, shape.bytes());
  for_bytes(steps, shape, [&](const auto& step, std::size_t place, const ImageShape& before, const ImageShape& after) {
    auto* to = --left == 0 ? out : scratch.take<std::uint8_t>(after.bytes());
    step.apply(in, before, to, draws.of_step(place), scratch);
    in = to;
  });
}

void TransformList::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  for_bytes(steps, shape,
            [&](const auto& step, std::size_t place, const ImageShape& before, const ImageShape& /*after*/) {
              if constexpr (requires { step.move(before, draws, mask); }) {
                step.move(before, draws.of_step(place), mask);
              } else {
                static_assert(std::remove_cvref_t<decltype(step)>::kKeepsPlaces);
              }
            });
}

at::Tensor TransformList::on_batch(const at::Tensor& batch) const {
  at::Tensor result = batch;
  for (const AnyTransform& step : steps) {
    std::visit(
        [&]<class T>(const T& transform) {
          if constexpr (TensorTransform<T>) result = transform(result);
        },
        step);
  }
  return result;
}

}  // namespace shoal
