// Operations of a BetonLoader's pipelines: decoders, and what makes of their values what a loop gets. By FFCV's names.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/copies/device_choice.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/option_text.h>
#include <shoal/workers/images/decode.h>
#include <shoal/workers/transforms/byte_transforms.h>
#include <shoal/workers/transforms/poison.h>
#include <shoal/workers/transforms/random_choice.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shoal {

/// Types of numbers, by their names in torch.
enum class BetonNumber : std::uint8_t {
  uint8,
  int8,
  int16,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  boolean
};

// ---------------------------------------------------------------- decoders: the first operation of each pipeline

/// An int field: int64 [n, 1], as in FFCV; Squeeze makes it [n].
struct IntDecoder {};
/// A float field: float64 [n, 1].
struct FloatDecoder {};
/// An array or a tensor: [n, ...] of the field's own type. Arrays of bytes, [height, width] or [channels, height, width],
/// may go through the transforms of pictures: as masks, whose values are taken and never mixed.
struct NDArrayDecoder {};
/// bytes and JSON: uint8 [n, longest], zeros behind the shorter ones, and beside it NAME.lengths, int64 [n].
struct BytesDecoder {
  std::int64_t length = 0;  ///< of every row; a longer value is an error. 0: that of the batch's longest

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"length", "of every row; 0: that of the batch's longest", {.unit = "bytes", .least = 0}},
  };
};
/// Pictures as they are: uint8 [n, height, width, 3], all of one size.
struct SimpleRGBImageDecoder {};
/// RandomResizedCrop's part of a picture, and only that part is decoded: a JPEG at 1, 1/2, 1/4 or 1/8 of its size,
/// without the blocks beside it and behind it. uint8 [n, size, 3].
struct RandomResizedCropRGBImageDecoder {
  ImageSize size;                                        ///< of what comes out; {n}: a square. FFCV: output_size
  std::array<double, 2> scale = {0.08, 1.0};             ///< least and largest share of the area
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  ///< least and largest ratio of width to height
  /// A JPEG's part that is at least twice the size of what comes out is decoded smaller. False: at full size, whose
  /// pixels are those of SimpleRGBImageDecoder and RandomResizedCrop.
  bool scaled = true;

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"size", "of what comes out"},
      {"scale", "least and largest share of the area", {.above = 0}},
      {"ratio", "least and largest of width to height", {.above = 0}},
      {"scaled", "a large part of a JPEG is decoded smaller"},
  };
};
/// The middle square of a picture, whose side is `ratio` of the shorter side, resized. uint8 [n, size, 3].
struct CenterCropRGBImageDecoder {
  ImageSize size;                ///< of what comes out; {n}: a square. FFCV: output_size
  double ratio = 224.0 / 256.0;  ///< of the square's side to the picture's shorter side
  bool scaled = true;            ///< as RandomResizedCropRGBImageDecoder's

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"size", "of what comes out"},
      {"ratio", "of the square's side to the picture's shorter side", {.above = 0}},
      {"scaled", "a large part of a JPEG is decoded smaller"},
  };
};

// ---------------------------------------------------------------- types and shapes

/// Does nothing: values are tensors from the beginning. For pipelines as FFCV has them.
struct ToTensor {};
/// Pictures [n, h, w, 3] become [n, 3, h, w]. With channels_last their pixels stay side by side in memory (torch's
/// channels_last format); else each colour is a plane.
struct ToTorchImage {
  bool channels_last = true;  ///< the order in memory; the shape is the same

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"channels_last", "the order in memory"},
  };
};
/// Another type of numbers.
struct Convert {
  BetonNumber dtype = BetonNumber::float32;  ///< FFCV: target_dtype

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"dtype", "of what comes out"},
  };
};
/// The same bytes as numbers of another type; the last dimension changes if its size does.
struct View {
  BetonNumber dtype = BetonNumber::uint8;  ///< FFCV: target_dtype

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"dtype", "what the bytes are taken for"},
  };
};
/// Leaves out dimensions of size 1, as torch's squeeze: the batch's own is 0 and stays.
struct Squeeze {
  std::vector<std::int64_t> dims = {};  ///< these alone; empty: all but the batch's

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"dims", "these alone; none: all but the batch's"},
  };
};
/// (x - mean) / std of each colour, of bytes from 0 to 255: mean and std are in such units, unlike Normalize's. Before
/// ToDevice it is one pass with a flip in front of it and the change of layout behind it.
struct NormalizeImage {
  std::vector<double> mean;                  ///< of red, green, blue; or one for all
  std::vector<double> std;                   ///< of red, green, blue; or one for all; none is 0
  BetonNumber dtype = BetonNumber::float32;  ///< float32, float16 or bfloat16; rounded once. FFCV: type

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"mean", "of red, green, blue, from 0 to 255; or one for all"},
      {"std", "likewise; none is 0"},
      {"dtype", "of what comes out"},
  };
};

// ---------------------------------------------------------------- labels, and samples mixed with one another

/// Labels of these samples become new_label.
struct ReplaceLabel {
  std::vector<std::int64_t> indices;  ///< of samples, counted over all files, as BetonDatasetOptions::indices
  std::int64_t new_label = 0;         ///< what they get

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"indices", "of samples, counted over all files", {.least = 0}},
      {"new_label", "what they get"},
  };
};
/// Each picture mixed with the one before it in the batch (the first one with the last), l * a + (1 - l) * b, with l
/// from Beta(alpha, alpha). Of pictures, behind transforms of bytes and before they are floats.
struct ImageMixup {
  double alpha = 0.2;        ///< above 0
  bool same_lambda = false;  ///< one l for all of a batch

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"alpha", "of Beta(alpha, alpha)", {.above = 0}},
      {"same_lambda", "one for all of a batch"},
  };
};
/// The label of an ImageMixup with the same parameters: float32 [n, 3] of label, the label mixed in, l.
struct LabelMixup {
  double alpha = 0.2;        ///< above 0
  bool same_lambda = false;  ///< one l for all of a batch

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"alpha", "of Beta(alpha, alpha)", {.above = 0}},
      {"same_lambda", "one for all of a batch"},
  };
};
/// Each picture with a part of the one before it in the batch in the same place (Yun and others 2019, "CutMix"): of the
/// share 1 - l, with l from Beta(alpha, alpha), cut off at the edges.
struct CutMix {
  double alpha = 1.0;        ///< above 0
  bool same_lambda = false;  ///< one l and one place for all of a batch

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"alpha", "of Beta(alpha, alpha)", {.above = 0}},
      {"same_lambda", "one for all of a batch"},
  };
};
/// The label of a CutMix with the same parameters: float32 [n, 3] of label, the label mixed in, the share of its own
/// pixels that a picture has kept.
struct LabelCutMix {
  double alpha = 1.0;        ///< above 0
  bool same_lambda = false;  ///< one l and one place for all of a batch
  ImageSize size;            ///< of the pictures; {n}: a square

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"alpha", "of Beta(alpha, alpha)", {.above = 0}},
      {"same_lambda", "one for all of a batch"},
      {"size", "of the pictures"},
  };
};

// ---------------------------------------------------------------- of which field, where it happens, by which draws

/// The very first operation, if a pipeline has it: the name in BetonPipelines is the output's, and this is its field. So a
/// field comes under another name, or as several: two views of a picture, each with draws of its own. The field itself
/// comes, too, unless its own pipeline is empty. Alone it only gives the other name.
struct PipelineSpec {
  std::string source;  ///< the field
};

/// The first operation (behind PipelineSpec), if a pipeline has it: pipelines with the same name draw alike, so that a picture and its mask go
/// the same way. The n-th RandomHorizontalFlip of one is that of the other, whatever stands between; the decoder
/// RandomResizedCropRGBImageDecoder counts as a RandomResizedCrop. Without it a pipeline's name is its field's.
struct DrawGroup {
  std::string name;  ///< any; the same in the pipelines that draw alike

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"name", "the same in pipelines that draw alike"},
  };
};
/// The batch's values go to a device. What follows works there, on whole batches, in the process that loops.
struct ToDevice {
  DeviceChoice device = {};  ///< a device, or a function that each process calls when its loop begins

  /// For `--help` and printed files.
  static constexpr OptionText kTexts[] = {
      {"device", "where the batch's values go"},
  };
};
/// Any function of a batch's tensor. It and what follows works in the process that loops. Not in a configuration.
struct ModuleWrapper {
  std::function<at::Tensor(const at::Tensor&)> module;  ///< say, [net](const at::Tensor& x) { return net->forward(x); }
};

/// As a message: its text. Throws std::invalid_argument for a function, which stays in its process.
template <>
struct Codec<ToDevice> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::ToDevice"); }
  static void encode(Encoder& encoder, const ToDevice& operation);
  static ToDevice decode(Decoder& decoder);
};
/// Crosses nowhere: throws std::invalid_argument.
template <>
struct Codec<ModuleWrapper> {
  static constexpr std::uint64_t schema() { return schema_hash("shoal::ModuleWrapper"); }
  static void encode(Encoder& encoder, const ModuleWrapper& operation);
  static ModuleWrapper decode(Decoder& decoder);
};

/// One operation. In a configuration `type` is its name.
using BetonOperation =
    ByteTransformsAnd<RandomApply, RandomChoice, Poison, IntDecoder, FloatDecoder, NDArrayDecoder, BytesDecoder,
                      SimpleRGBImageDecoder, RandomResizedCropRGBImageDecoder, CenterCropRGBImageDecoder, ToTensor,
                      ToTorchImage, Convert, View, Squeeze, NormalizeImage, ReplaceLabel, ImageMixup, LabelMixup,
                      CutMix, LabelCutMix, PipelineSpec, DrawGroup, ToDevice, ModuleWrapper>;
/// What happens to a field's values, in order. Empty: the field is left out of batches.
using BetonPipeline = std::vector<BetonOperation>;
/// By the names of outputs, which are the fields' but for pipelines with a PipelineSpec. A field whose name is no output's
/// comes as it is, as from a BetonDataset.
using BetonPipelines = std::map<std::string, BetonPipeline>;

/// The operation's name, as in C++.
std::string_view name_of(const BetonOperation& operation);

}  // namespace shoal
