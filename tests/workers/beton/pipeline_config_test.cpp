// Fields, pipelines and orders as a plain description: read from a file, printed, encoded.
#include <ATen/ATen.h>
#include <shoal/ipc/codec.h>
#include <shoal/runtime/configure.h>
#include <shoal/workers/beton/beton_loader.h>
#include <shoal/workers/beton/beton_writer.h>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using namespace shoal::test;

namespace {

struct LabelledPictures {
  struct Sample {
    at::Tensor image;
    std::int64_t label;
    std::string name;
  };
  std::int64_t size() const { return 12; }
  Sample get(std::int64_t i) const { return {smooth_image(40, 50, int(i)), i, "it"}; }
};

struct Training {
  std::filesystem::path file = "train.beton";
  BetonLoaderOptions loader = {.batch_size = 4};
};

constexpr const char* kFile = R"(
file = "pictures.beton"

[loader]
batch_size = 3
num_workers = 1
order = "quasi_random"
seed = 5
window_pages = 2
drop_last = false

[loader.pipelines]
image = [
  {type = "DrawGroup", name = "pair"},
  {type = "RandomResizedCropRGBImageDecoder", size = {height = 16, width = 16}, scale = [0.25, 1.0]},
  {type = "RandomApply", p = 0.3, transforms = [{type = "RandomSolarize", threshold = 90}, {type = "GaussianBlur"}]},
  {type = "RandAugment", num_ops = 1},
  {type = "RandomHorizontalFlip"},
  {type = "NormalizeImage", mean = [123.7, 116.3, 103.5], std = [58.0], dtype = "float16"},
  {type = "ToTorchImage", channels_last = false},
  {type = "ToDevice", device = "cpu"},
]
label = [{type = "IntDecoder"}, {type = "Squeeze"}, {type = "Convert", dtype = "int32"}]
name = []
)";

}  // namespace

TEST_CASE("beton configuration: fields, pipelines and order come from a file, and make the batches that C++ makes") {
  const TemporaryFolder folder;
  BetonWriter(folder.file("it")).write(LabelledPictures{});
  const auto training = parse_config<Training>(kFile);
  CHECK(training.loader.order == BetonOrder::quasi_random);
  CHECK(training.loader.pipelines.at("name").empty());
  const BetonPipeline image = {DrawGroup{"pair"},
                               RandomResizedCropRGBImageDecoder{.size = {16, 16}, .scale = {0.25, 1}},
                               RandomApply{{RandomSolarize{.threshold = 90}, GaussianBlur{}}, 0.3},
                               RandAugment{.num_ops = 1},
                               RandomHorizontalFlip{},
                               NormalizeImage{{123.7, 116.3, 103.5}, {58}, BetonNumber::float16},
                               ToTorchImage{false}};
  const BetonPipeline label = {IntDecoder{}, Squeeze{}, Convert{BetonNumber::int32}};
  const BetonLoaderOptions written{.batch_size = 3,
                                   .order = BetonOrder::quasi_random,
                                   .seed = 5,
                                   .pipelines = {{"image", image}, {"label", label}, {"name", {}}},
                                   .drop_last = false,
                                   .window_pages = 2};
  BetonLoader from_file(folder.file("it"), training.loader), from_code(folder.file("it"), written);
  auto expected = from_code.begin();
  int batches = 0;
  for (auto& batch : from_file) {
    REQUIRE(batch.size() == 2);
    CHECK(batch["image"].scalar_type() == at::kHalf);
    for (const auto& [name, values] : *expected) CHECK(batch.at(name).equal(values));
    ++expected;
    ++batches;
  }
  CHECK(batches == 4);
}

TEST_CASE("beton configuration: is printed as what reads back equal, and changed on a command line") {
  const auto training = parse_config<Training>(kFile);
  const std::string printed = config_text(training);
  CHECK_THAT(printed, ContainsSubstring("RandomResizedCropRGBImageDecoder"));
  CHECK(config_text(parse_config<Training>(printed)) == printed);
  const auto changed = read_config<Training>({"loader.order=sequential", "loader.pipelines.image.4.p=1"}, training);
  CHECK(changed.loader.order == BetonOrder::sequential);
  CHECK(std::get<RandomHorizontalFlip>(changed.loader.pipelines.at("image")[4]).p == 1);
  CHECK_THROWS_WITH(parse_config<Training>("[loader.pipelines]\nimage = [{type = \"RandomHorizontalFlop\"}]"),
                    ContainsSubstring("RandomHorizontalFlip"));
  CHECK_THROWS_WITH(
      parse_config<Training>("[loader.pipelines]\nimage = [{type = \"ToTorchImage\", chanels_last = true}]"),
      ContainsSubstring("channels_last"));
}

TEST_CASE("beton configuration: crosses as it is, with devices by name; functions do not") {
  const auto training = parse_config<Training>(kFile);
  Encoder encoder;
  encode(encoder, training.loader.pipelines);
  Decoder decoder(encoder.bytes(), {});
  Training received = training;
  received.loader.pipelines = decode<BetonPipelines>(decoder);
  CHECK(config_text(received) == config_text(training));
  Encoder refused;
  CHECK_THROWS_WITH(encode(refused, BetonPipelines{{"image", {ToDevice{[] { return at::Device(at::kCPU); }}}}}),
                    ContainsSubstring("stays in its process"));
}
