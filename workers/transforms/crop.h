// Crops: parts of pictures, padded if they reach over the edge; Cutout.
#pragma once

#include <shoal/runtime/option_text.h>
#include <shoal/workers/transforms/transform.h>

#include <array>
#include <cstdint>
#include <optional>

namespace shoal {

/// What is added on each side: {n} on all, {x, y} left and right, top and bottom, {left, top, right, bottom}.
struct Padding {
  std::int64_t left = 0;                              ///< pixels
  std::optional<std::int64_t> top = std::nullopt;     ///< pixels; as left if it is not given
  std::optional<std::int64_t> right = std::nullopt;   ///< pixels; as left if it is not given
  std::optional<std::int64_t> bottom = std::nullopt;  ///< pixels; as top if it is not given

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"left", "at the left", {.unit = "pixels", .least = 0}},
      {"top", "at the top; none: as left", {.unit = "pixels", .least = 0}},
      {"right", "at the right; none: as left", {.unit = "pixels", .least = 0}},
      {"bottom", "at the bottom; none: as top", {.unit = "pixels", .least = 0}},
  };
};

/// What the padding consists of. constant: `fill`. edge: the last pixel again. reflect: the picture mirrored, without
/// repeating the last pixel. symmetric: the same, repeating it.
enum class PaddingMode : std::uint8_t { constant, edge, reflect, symmetric };

/// torchvision's RandomCrop: a part of `size` ({n}: a square) at a random place of the padded picture. Throws
/// std::invalid_argument if the padded picture is smaller than the part, unless pad_if_needed.
struct RandomCrop {
  ImageSize size;                                    ///< of the part; {n}: a square
  Padding padding = {};                              ///< around the picture, before it is cut
  bool pad_if_needed = false;                        ///< adds what a picture lacks that is smaller than the part
  std::uint8_t fill = 0;                             ///< of all channels, if padding_mode is constant
  PaddingMode padding_mode = PaddingMode::constant;  ///< what stands in the padding
  /// What pads a mask, in place of `fill`: say, the class that a loss ignores.
  std::optional<std::int64_t> mask_fill = std::nullopt;

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"size", "of the part"},
      {"padding", "around the picture, before it is cut"},
      {"pad_if_needed", "adds what a smaller picture lacks"},
      {"fill", "of all channels, with constant"},
      {"padding_mode", "what stands in the padding"},
      {"mask_fill", "what pads a mask, in place of fill"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// torchvision's CenterCrop: the middle of the picture, with zeros around it if the picture is smaller.
struct CenterCrop {
  ImageSize size;  ///< of the part; {n}: a square

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"size", "of the part"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// FFCV's RandomTranslate: the picture moved by up to `padding` pixels in each direction, with `fill` where it came from.
struct RandomTranslate {
  std::int64_t padding = 0;                              ///< the most pixels, at least 0
  std::array<std::uint8_t, 3> fill = {0, 0, 0};          ///< RGB; of a grey picture the first one
  std::optional<std::int64_t> mask_fill = std::nullopt;  ///< what a mask has there; 0 if it is not given

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"padding", "the most", {.unit = "pixels", .least = 0}},
      {"fill", "red, green, blue"},
      {"mask_fill", "what a mask has there; none: 0"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
  void move(const ImageShape& shape, const Draws& draws, MaskSources& mask) const;
};

/// Cutout (DeVries and Taylor 2017, "Improved regularization of convolutional neural networks with cutout"): fills
/// `n_holes` squares of side `length` around random pixels; they may reach over the edge. Not in torchvision, whose
/// RandomErasing is something else.
struct Cutout {
  std::int64_t n_holes = 1;                   ///< squares
  std::int64_t length = 16;                   ///< pixels of a side
  std::uint8_t fill = 0;                      ///< of all channels
  static constexpr bool kKeepsPlaces = true;  ///< a mask stays as it is, as with torchvision's RandomErasing

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"n_holes", "squares", {.least = 0}},
      {"length", "of a side", {.unit = "pixels", .least = 0}},
      {"fill", "of all channels"},
  };

  ImageShape output(const ImageShape& shape) const;
  void apply(const std::uint8_t* in, const ImageShape& shape, std::uint8_t* out, const Draws& draws,
             TransformScratch& scratch) const;
};

}  // namespace shoal
