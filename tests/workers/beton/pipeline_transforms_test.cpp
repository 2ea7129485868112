// Every transform of bytes: in a pipeline, with any number of workers, and on the samples of another data set.
#include <ATen/ATen.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>
#include <shoal/workers/beton/beton_loader.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/transformed_dataset.h>
#include <shoal/workers/transforms/transform_list.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/beton/pipeline_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Of each kind one that changes most pictures.
std::vector<BetonOperation> transforms_of_bytes() {
  const SingleTransform turned = RandomRotation{.degrees = {-40, 40}, .fill = 9};
  return {RandomHorizontalFlip{},
          RandomVerticalFlip{},
          RandomCrop{.size = {20, 24}, .padding = {3}},
          RandomResizedCrop{{16, 20}},
          Resize{{15, 21}},
          CenterCrop{{24, 30}},
          RandomTranslate{4},
          RandomRotation{.degrees = {-30, 30}, .bilinear = true},
          RandomAffine{.degrees = {-9, 9}, .translate = {0.2, 0.1}, .scale = {0.7, 1.3}, .shear = {-8, 8}},
          Cutout{.n_holes = 2, .length = 9, .fill = 7},
          RandomErasing{.p = 0.9},
          ColorJitter{{0.5}, {0.5}, {0.5}, {0.2}},
          RandomBrightness{0.6, 0.9},
          RandomContrast{0.6, 0.9},
          RandomSaturation{0.6, 0.9},
          RandomHue{0.3, 0.9},
          RandomGrayscale{0.7},
          RandomSolarize{100, 0.8},
          GaussianBlur{},
          RandAugment{.magnitude = 15},
          TrivialAugment{},
          RandomApply{{turned, RandomHue{0.4, 1}}, 0.8},
          RandomChoice{{turned, RandomSolarize{90, 1}, RandomVerticalFlip{1}}},
          Poison{.mask = at::full({3, 30, 44}, 200.0F), .alpha = at::full({30, 44}, 0.5F), .indices = {0, 2, 3, 5}}};
}

/// What the transform itself makes of a sample's picture, by these draws.
at::Tensor applied(const BetonOperation& operation, const at::Tensor& picture, const Draws& draws) {
  return std::visit(
      [&]<class T>(const T& transform) -> at::Tensor {
        if constexpr (ByteTransform<T>) {
          const ImageShape shape{3, picture.size(1), picture.size(2)}, after = transform.output(shape);
          at::Tensor out = at::empty({3, after.height, after.width}, at::kByte);
          TransformScratch scratch;
          transform.apply(picture.const_data_ptr<std::uint8_t>(), shape, out.mutable_data_ptr<std::uint8_t>(), draws,
                          scratch);
          return out;
        } else {
          return {};
        }
      },
      operation);
}

/// Of anything but a .beton file.
struct ElsewherePictures {
  struct Sample {
    at::Tensor image;
    at::Tensor label;
  };
  static std::int64_t size() { return 6; }
  static Sample get(std::int64_t i) { return {PipelinePictures().get(i).image, at::full({}, i, at::kLong)}; }
};

template <std::size_t... I>
constexpr std::size_t transforms_in_pipelines(std::index_sequence<I...>) {
  return (std::size_t(ByteTransform<std::variant_alternative_t<I, BetonOperation>>) + ...);
}

}  // namespace

TEST_CASE(
    "beton pipeline: each transform of bytes is what it is by itself, raw and JPEG, and with 0, 1 and 7 workers") {
  const TemporaryFolder folder;
  const auto operations = transforms_of_bytes();
  BetonPipelines pipelines = {{"image", {}}, {"mask", {}}, {"score", {}}, {"text", {}}};
  for (const BetonOperation& operation : operations)
    pipelines[std::string(name_of(operation))] = {PipelineSpec{"image"}, SimpleRGBImageDecoder{}, operation,
                                                  ToTorchImage{false}};
  REQUIRE(pipelines.size() ==
          4 + transforms_in_pipelines(std::make_index_sequence<std::variant_size_v<BetonOperation>>()));
  for (const BetonWriteMode mode : {BetonWriteMode::raw, BetonWriteMode::jpg}) {
    const std::string path = written(folder, {}, mode);
    const at::Tensor pictures = batch_of(path, {}).at("image");
    const BetonSample batch = beton_dataset(path, {.pipelines = pipelines}).get_batch(counted(6));
    for (const BetonOperation& operation : operations) {
      const std::string name(name_of(operation));
      CAPTURE(name);
      bool changes = false;
      for (std::int64_t i = 0; i < 6; ++i) {
        const at::Tensor expected =
            applied(operation, pictures[i].contiguous(), {sample_key(i), shoal::detail::draw_number(name, name, 0)});
        CHECK(batch.at(name)[i].equal(expected));
        changes = changes || expected.sizes() != pictures[i].sizes() || !expected.equal(pictures[i]);
      }
      CHECK(changes);
    }
    std::vector<BetonSample> batches;
    for (const int workers : {0, 1, 7}) {
      BetonLoader loader(
          path,
          {.batch_size = 2, .num_workers = workers, .order = BetonOrder::random, .seed = 4, .pipelines = pipelines});
      std::size_t at = 0;
      for (auto& made : loader) {
        if (workers == 0) {
          batches.push_back(made);
          continue;
        }
        for (const auto& [name, values] : batches.at(at)) {
          CAPTURE(name, workers);
          CHECK(made.at(name).equal(values));
        }
        ++at;
      }
    }
    CHECK(batches.size() == 3);
  }
}

TEST_CASE("beton pipeline: each transform of bytes also works on another data set, with 0, 1 and 7 workers") {
  for (const BetonOperation& operation : transforms_of_bytes()) {
    const std::string name(name_of(operation));
    CAPTURE(name);
    const auto check = [&](const auto& transform) {
      const auto dataset = transformed(ElsewherePictures{}, transform);
      std::vector<at::Tensor> images;
      for (const int workers : {0, 1, 7}) {
        if (workers == 7 && name != "RandAugment") continue;  // seven processes for one is enough
        DataLoader loader({.batch_size = 4, .num_workers = workers, .seed = 8}, dataset);
        std::size_t at = 0;
        for (auto& batch : loader) {
          for (std::int64_t i = 0; i < batch.image.size(0); ++i, ++at) {
            if (workers == 0)
              images.push_back(batch.image[i].clone());
            else
              CHECK(batch.image[i].equal(images.at(at)));
          }
        }
      }
      REQUIRE(images.size() == 6);
      bool changes = false;
      for (std::int64_t i = 0; i < 6; ++i) {
        const at::Tensor picture = ElsewherePictures::get(i).image;
        const at::Tensor& image = images[std::size_t(i)];
        CHECK(image.equal(transform_image(transform, picture, {8, 0, std::uint64_t(i)})));
        changes = changes || image.sizes() != picture.sizes() || !image.equal(picture);
      }
      CHECK(changes);
    };
    std::visit(
        [&]<class T>(const T& transform) {
          if constexpr (requires { AnyTransform(transform); })
            check(TransformList{{transform}});
          else if constexpr (std::same_as<T, Poison>)
            check(Compose{transform});
        },
        operation);
  }
}
