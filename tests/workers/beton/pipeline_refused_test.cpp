// Pipelines that cannot be: refused when the file is opened, with field and operation.
#include <ATen/ATen.h>
#include <shoal/workers/beton/beton_loader.h>

#include <stdexcept>
#include <string>

#include "tests/support/catch.h"
#include "tests/workers/beton/pipeline_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Arrays that are no masks.
struct Rows {
  struct Sample {
    at::Tensor row, numbers;
  };
  static std::int64_t size() { return 3; }
  static Sample get(std::int64_t) { return {at::zeros({5}), at::zeros({4, 4}, at::kComplexFloat)}; }
};

}  // namespace

TEST_CASE("beton pipeline: transforms of masks are refused where an array is none, when the file is opened") {
  const TemporaryFolder folder;
  const std::string path = folder.file("rows.beton");
  BetonWriter(path, {.page_bytes = 2U << 20U}).write(Rows{});
  const BetonPipeline moved = {NDArrayDecoder{}, RandomHorizontalFlip{}};
  CHECK_THROWS_WITH(
      beton_dataset(path, {.pipelines = {{"row", moved}}}),
      ContainsSubstring("\"row\"") && ContainsSubstring("RandomHorizontalFlip: the field has 1 dimensions"));
  CHECK_THROWS_WITH(beton_dataset(path, {.pipelines = {{"numbers", moved}}}),
                    ContainsSubstring("no mask has numbers of type ComplexFloat"));
}

TEST_CASE("beton pipeline: what cannot be is refused when the file is opened, with field and operation") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const auto refused = [&](const BetonPipelines& pipelines, const std::string& text) {
    CHECK_THROWS_AS(BetonLoader(path, {.pipelines = pipelines}), std::invalid_argument);
    CHECK_THROWS_WITH(BetonLoader(path, {.pipelines = pipelines}), ContainsSubstring(text));
  };
  refused({{"image", {ToTensor{}}}},
          "pipeline of field \"image\", rgb_image: ToTensor: a pipeline of pictures begins with");
  refused({{"image", {SimpleRGBImageDecoder{}, ToTorchImage{}, RandomHorizontalFlip{}}}},
          "RandomHorizontalFlip: it works on a picture's bytes");
  refused({{"image", {SimpleRGBImageDecoder{}, ImageMixup{.alpha = 0}}}}, "alpha is 0");
  refused({{"image", {SimpleRGBImageDecoder{}, NormalizeImage{{1}, {0}}}}}, "no std is 0");
  refused({{"image", {RandomResizedCropRGBImageDecoder{}}}}, "size is 0 x 0");
  refused({{"image", {SimpleRGBImageDecoder{}, RandomCrop{}}}}, "RandomCrop: size is 0 x 0");
  refused({{"image", {SimpleRGBImageDecoder{}, RandomHorizontalFlip{2}}}}, "RandomHorizontalFlip: p is 2");
  refused({{"label", {FloatDecoder{}}}}, "field \"label\", int: FloatDecoder: the field is of the other kind");
  refused({{"label", {IntDecoder{}, Cutout{}}}}, "Cutout: it does not work on numbers");
  refused({{"label", {IntDecoder{}, ToDevice{at::kCPU}, LabelMixup{}}}}, "LabelMixup works on single samples");
  refused({{"mask", {NDArrayDecoder{}, ColorJitter{}, Convert{}, RandomHorizontalFlip{}}}},
          "come right behind NDArrayDecoder");
  refused({{"images", {SimpleRGBImageDecoder{}}}}, "no field is named \"images\"");
  refused({{"label", {IntDecoder{}, DrawGroup{"a"}}}}, "DrawGroup: it stands first");
  // What works on whole batches, before there is one: in the workers, and behind ToDevice.
  refused({{"label", {IntDecoder{}, ToTorchImage{}}}}, "ToTorchImage: it takes pictures");
  refused({{"label", {IntDecoder{}, Squeeze{{2}}}}}, "Squeeze: dimension 2 of 2");
  refused({{"score", {FloatDecoder{}, Convert{}, View{BetonNumber::float64}}}},
          "field \"score\", float: View: it cannot be applied to a batch of [2, 1] Float");
  refused({{"mask", {NDArrayDecoder{}, View{BetonNumber::int64}}}},
          "View: it cannot be applied to a batch of [2, 30, 44]");
  refused({{"mask", {NDArrayDecoder{}, NormalizeImage{{1, 2}, {1}}}}}, "NormalizeImage: it takes one mean and one std");
  refused({{"mask", {NDArrayDecoder{}, NormalizeImage{{1, 2, 3}, {1}}}}}, "NormalizeImage: it cannot be applied");
  const ToDevice here{at::kCPU};
  refused({{"image", {SimpleRGBImageDecoder{}, here, ToTorchImage{}, ToTorchImage{}}}},
          "ToTorchImage: it takes pictures");
  refused({{"image", {SimpleRGBImageDecoder{}, here, NormalizeImage{{1}, {0}}}}}, "no std is 0");
  refused({{"image", {SimpleRGBImageDecoder{}, here, Convert{}, Squeeze{{4}}}}}, "Squeeze: dimension 4 of 4");
  refused({{"image", {SimpleRGBImageDecoder{}, ModuleWrapper{}}}}, "ModuleWrapper: it has no function");
  refused({{"text", {BytesDecoder{}, Squeeze{{-2}}}}}, "Squeeze: dimension -2 of 2");
  // What is not known before stays for the first batch.
  const ModuleWrapper flat{[](const at::Tensor& batch) { return batch.flatten(1); }};
  CHECK_NOTHROW(BetonLoader(path, {.pipelines = {{"image", {SimpleRGBImageDecoder{}, flat, Squeeze{{3}}}}}}));
  CHECK_NOTHROW(BetonLoader(path, {.pipelines = {{"text", {BytesDecoder{}, View{BetonNumber::int64}}}}}));
  refused({{"text", {BytesDecoder{}}}, {"text.lengths", {PipelineSpec{"label"}, IntDecoder{}}}},
          "two values of a batch would be named \"text.lengths\"");
  struct Labelled {
    std::int64_t label;
  };
  CHECK_THROWS_WITH(beton_dataset<Labelled>(path, {.pipelines = {{"label", {IntDecoder{}}}}}),
                    ContainsSubstring("BetonSample"));
  Encoder encoder;
  CHECK_THROWS_WITH(encode(encoder, BetonOperation(ModuleWrapper{})), ContainsSubstring("stays in its process"));
}
