// TransformList: transforms chosen at run time, from a description.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/transforms/byte_transforms.h>
#include <shoal/workers/transforms/random_choice.h>
#include <shoal/workers/transforms/to_float.h>
#include <shoal/workers/transforms/transform.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace shoal {

/// One transform as text: its name and its parameters' names as in C++, values as in torchvision: 0.5, true, reflect,
/// [0.485, 0.456, 0.406]. Plain strings: from a configuration, an option, a checkpoint.
struct TransformStep {
  std::string name;                                    ///< of the transform, as in C++
  std::map<std::string, std::string> parameters = {};  ///< by name; those not named have their defaults

  bool operator==(const TransformStep&) const = default;
};
/// Steps in order.
using TransformDescription = std::vector<TransformStep>;

/// Parses "RandomCrop(size=32, padding=4), RandomHorizontalFlip(), ToFloat()": steps with commas or line ends between
/// them. Throws std::invalid_argument, which shows the place. It does not check the names: TransformList::from() does.
TransformDescription parse_transforms(std::string_view text);
/// Writes the text that parse_transforms() reads.
std::string to_string(const TransformDescription& description);

/// Any of shoal's transforms that a text can describe.
using AnyTransform = ByteTransformsAnd<RandomApply, RandomChoice, ToFloat, Normalize>;

/// A Compose whose steps are chosen at run time: an ImageTransform that draws the same numbers as a Compose of the same
/// steps. As there, steps that work on bytes come before those that make floats. A plain aggregate: it crosses to
/// workers. To add transforms of your own, put it into a Compose, behind those that work on bytes. Threads: any.
struct TransformList {
  std::vector<AnyTransform> steps;  ///< in order

  /// Makes the transforms. Throws std::invalid_argument, which names the step, its parameter and value, and what is
  /// possible.
  static TransformList from(const TransformDescription& description);
  /// Makes the transforms that a text describes; parse_transforms() says how.
  static TransformList from(std::string_view text) { return from(parse_transforms(text)); }
  /// Describes all steps with all parameters: from() makes the same list of it.
  TransformDescription description() const;

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
  /// Applies the steps that work on whole batches; `batch` has been through the others.
  at::Tensor on_batch(const at::Tensor& batch) const;
  /// Whether any step works on bytes.
  bool has_bytes() const;
};

}  // namespace shoal
