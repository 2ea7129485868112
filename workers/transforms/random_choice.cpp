#include <shoal/workers/transforms/random_choice.h>

#include <fmt/format.h>

#include <concepts>
#include <cstring>
#include <stdexcept>

namespace shoal {
namespace {

ImageShape output_of(const SingleTransform& transform, const ImageShape& shape) {
  return std::visit([&](const auto& its) { return its.output(shape); }, transform);
}

void apply_one(const SingleTransform& transform, const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out,
               const Draws& draws, TransformScratch& scratch) {
  std::visit([&](const auto& its) { its.apply(in, shape, out, draws, scratch); }, transform);
}

void move_one(const SingleTransform& transform, const ImageShape& shape, const Draws& draws, MaskSources& mask) {
  std::visit(
      [&](const auto& its) {
        if constexpr (requires { its.move(shape, draws, mask); }) its.move(shape, draws, mask);
      },
      transform);
}

// What turns pictures is refused before the draw: else a mask would be refused now and then.
void check_turns_none(const std::vector<SingleTransform>& transforms, const ImageShape& shape, const Draws& draws,
                      MaskSources& mask) {
  for (const SingleTransform& transform : transforms)
    std::visit(
        [&]<class T>(const T& its) {
          if constexpr (std::same_as<T, RandomRotation> || std::same_as<T, RandomAffine> ||
                        std::same_as<T, RandAugment> || std::same_as<T, TrivialAugment>)
            its.move(shape, draws, mask);
        },
        transform);
}

// The draws of a transform's own choice; those of the transforms in it are of_step(place).
SampleRandom choice_of(const Draws& draws) { return draws.random(); }

std::size_t chosen(const RandomChoice& choice, const Draws& draws) {
  SampleRandom random = choice_of(draws);
  if (choice.p.empty()) return std::size_t(random.below(std::int64_t(choice.transforms.size())));
  double sum = 0;
  for (const double weight : choice.p) sum += weight;
  double left = random.uniform() * sum;
  for (std::size_t i = 0; i + 1 < choice.p.size(); ++i) {
    if (left < choice.p[i]) return i;
    left -= choice.p[i];
  }
  return choice.p.size() - 1;
}

}  // namespace

void RandomApply::check() const { detail::check_probability("RandomApply", p); }

ImageShape RandomApply::output(const ImageShape& shape) const {
  check();
  ImageShape after = shape;
  for (const SingleTransform& transform : transforms) after = output_of(transform, after);
  if (after != shape)
    throw std::invalid_argument(
        fmt::format("RandomApply: its transforms make [{}, {}, {}] of [{}, {}, {}]; they have to keep the size",
                    after.channels, after.height, after.width, shape.channels, shape.height, shape.width));
  return shape;
}

void RandomApply::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                        TransformScratch& scratch) const {
  if (!choice_of(draws).chance(p) || transforms.empty()) {
    std::memcpy(out, in, shape.bytes());
    return;
  }
  const TransformScratch::Frame frame(scratch);
  ImageShape before = shape;
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    const ImageShape after = output_of(transforms[i], before);
    auto* to = i + 1 == transforms.size() ? out : scratch.take<std::uint8_t>(after.bytes());
    apply_one(transforms[i], in, before, to, draws.of_step(i), scratch);
    in = to;
    before = after;
  }
}

void RandomApply::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  check_turns_none(transforms, shape, draws, mask);
  if (!choice_of(draws).chance(p)) return;
  ImageShape before = shape;
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    move_one(transforms[i], before, draws.of_step(i), mask);
    before = output_of(transforms[i], before);
  }
}

void RandomChoice::check() const {
  if (transforms.empty() || (!p.empty() && p.size() != transforms.size()))
    throw std::invalid_argument(
        fmt::format("RandomChoice: {} transforms, {} weights; at least one, and a weight for each or none",
                    transforms.size(), p.size()));
  double sum = 0;
  for (const double weight : p) {
    if (!(weight >= 0))
      throw std::invalid_argument(fmt::format("RandomChoice: a weight is {}; none is negative", weight));
    sum += weight;
  }
  if (!p.empty() && !(sum > 0)) throw std::invalid_argument("RandomChoice: all weights are 0");
}

ImageShape RandomChoice::output(const ImageShape& shape) const {
  check();
  const ImageShape after = output_of(transforms[0], shape);
  for (const SingleTransform& transform : transforms)
    if (output_of(transform, shape) != after)
      throw std::invalid_argument("RandomChoice: its transforms make different sizes of a picture");
  return after;
}

void RandomChoice::apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
                         TransformScratch& scratch) const {
  const std::size_t which = chosen(*this, draws);
  apply_one(transforms[which], in, shape, out, draws.of_step(which), scratch);
}

void RandomChoice::move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const {
  check_turns_none(transforms, shape, draws, mask);
  const std::size_t which = chosen(*this, draws);
  move_one(transforms[which], shape, draws.of_step(which), mask);
}

}  // namespace shoal
