// Pipelines of .beton files: each operation's values against plain loops, torch, or what other parts of shoal give.
#include <ATen/ATen.h>
#include <shoal/internal/workers/beton/pipeline/mixing.h>

#include <cmath>
#include <set>
#include <string>

#include "tests/support/catch.h"
#include "tests/workers/allocations.h"
#include "tests/workers/beton/pipeline_fixtures.h"

using namespace shoal;
using namespace shoal::test;

TEST_CASE("beton pipeline: flips, numbers of every type and both layouts, raw and JPEG, from the file in one pass") {
  const TemporaryFolder folder;
  const PipelinePictures pictures{.width = 71};  // a block of 64 pixels and a rest
  for (const BetonWriteMode mode : {BetonWriteMode::raw, BetonWriteMode::jpg}) {
    const std::string path = written(folder, pictures, mode);
    const at::Tensor planes = batch_of(path, {}).at("image");
    CHECK(image_batch(path, {SimpleRGBImageDecoder{}, ToTensor{}}).equal(planes.permute({0, 2, 3, 1})));
    for (const double mirrored : {0.0, 1.0})
      for (const double upside_down : {0.0, 1.0})
        for (const bool channels_last : {false, true}) {
          at::Tensor expected = planes;
          if (mirrored == 1) expected = expected.flip({3});
          if (upside_down == 1) expected = expected.flip({2});
          const auto by = [&](const BetonPipeline& rest) {
            BetonPipeline pipeline = {SimpleRGBImageDecoder{}, RandomHorizontalFlip{mirrored},
                                      RandomVerticalFlip{upside_down}};
            pipeline.insert(pipeline.end(), rest.begin(), rest.end());
            pipeline.emplace_back(ToTorchImage{channels_last});
            const at::Tensor batch = image_batch(path, pipeline);
            CHECK(batch.is_contiguous(channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous));
            return batch;
          };
          CHECK(by({}).equal(expected));
          const at::Tensor exact = normalized(expected), floats = by({kNormalize});
          CHECK(at::allclose(floats.to(at::kDouble), exact, 1e-6, 1e-6));
          NormalizeImage half = kNormalize, brain = kNormalize;
          half.dtype = BetonNumber::float16;
          brain.dtype = BetonNumber::bfloat16;
          CHECK(by({half}).equal(floats.to(at::kHalf)));
          CHECK(by({brain}).equal(floats.to(at::kBFloat16)));
          CHECK(by({kNormalize, Convert{BetonNumber::float16}}).equal(floats.to(at::kHalf)));
          CHECK(by({Convert{BetonNumber::float32}}).equal(expected.to(at::kFloat)));
          CHECK(by({Convert{BetonNumber::int32}}).equal(expected.to(at::kInt)));
          // The same with a step that has the bytes in planes first.
          CHECK(by({Cutout{.length = 0}, kNormalize}).equal(floats));
          CHECK(by({Cutout{.length = 0}, RandomHorizontalFlip{1}, kNormalize}).equal(floats.flip({3})));
          CHECK(by({Cutout{.length = 0}, RandomHorizontalFlip{1}, RandomVerticalFlip{1}}).equal(expected.flip({2, 3})));
        }
  }
}

TEST_CASE("beton pipeline: numbers, arrays and bytes, with FFCV's shapes") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  BetonSample batch =
      batch_of(path, {{"image", {}},
                      {"label", {IntDecoder{}, ReplaceLabel{{4, 1}, 77}, ToTensor{}, Convert{BetonNumber::float32}}},
                      {"score", {FloatDecoder{}, Squeeze{}}},
                      {"mask", {NDArrayDecoder{}, View{BetonNumber::int16}, Convert{BetonNumber::int64}}},
                      {"text", {BytesDecoder{}}}});
  CHECK(!batch.contains("image"));
  CHECK(batch["label"].equal(at::tensor({0.0F, 77.0F, 6.0F, 9.0F, 77.0F, 15.0F}).unsqueeze(1)));
  CHECK(batch["score"].equal(at::arange(6, at::kDouble) / 4));
  CHECK(batch["text"].sizes() == at::IntArrayRef({6, 5}));
  CHECK(batch["text.lengths"].equal(at::arange(6, at::kLong)));
  CHECK(batch["text"][3].equal(at::tensor({100, 100, 100, 0, 0}, at::kByte)));
  CHECK(batch["mask"].equal(batch_of(path, {})["mask"].view(at::kShort).to(at::kLong)));
  CHECK(batch_of(path, {{"text", {BytesDecoder{9}}}})["text"].size(1) == 9);
  CHECK_THROWS_WITH(batch_of(path, {{"text", {BytesDecoder{4}}}}),
                    ContainsSubstring("has 5 bytes, BytesDecoder a length of 4"));
  CHECK(batch_of(path, {{"label", {IntDecoder{}}}})["label"].sizes() == at::IntArrayRef({6, 1}));
  const auto one = beton_dataset(path, {.pipelines = {{"label", {IntDecoder{}}}}}).get(2);
  CHECK(one.at("label").equal(at::tensor({6}, at::kLong)));
}

TEST_CASE("beton pipeline: ToTensor does nothing, wherever it stands behind a decoder") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const BetonPipelines without = {{"image",
                                   {SimpleRGBImageDecoder{}, RandomHorizontalFlip{}, RandomTranslate{2}, ImageMixup{},
                                    kNormalize, ToTorchImage{}, ToDevice{at::kCPU}, Convert{BetonNumber::float16}}},
                                  {"label", {IntDecoder{}, ReplaceLabel{{1}, 7}, LabelMixup{}, Squeeze{}}},
                                  {"mask", {NDArrayDecoder{}, RandomHorizontalFlip{}, RandomTranslate{2}}}};
  BetonPipelines with;
  for (const auto& [name, pipeline] : without)
    for (const BetonOperation& operation : pipeline) {
      with[name].push_back(operation);
      with[name].emplace_back(ToTensor{});
    }
  BetonSample expected = batch_of(path, without), batch = batch_of(path, with);
  for (const auto& [name, values] : expected) {
    INFO(name);
    CHECK(batch.at(name).equal(values));
    CHECK(batch.at(name).strides() == values.strides());
  }
}

TEST_CASE("beton pipeline: pictures and labels are mixed with their neighbours by the same shares") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const at::Tensor whole = batch_of(path, {}).at("image");
  for (const bool same : {false, true}) {
    BetonSample batch =
        batch_of(path, {{"image", {SimpleRGBImageDecoder{}, ImageMixup{0.4, same}, ToTorchImage{false}}},
                        {"label", {IntDecoder{}, LabelMixup{0.4, same}}}});
    std::set<float> shares;
    for (std::int64_t i = 0; i < 6; ++i) {
      const std::int64_t before = i == 0 ? 5 : i - 1;
      const auto share = float(shoal::detail::mixup_share(0.4, sample_key(same ? 5 : i)));
      shares.insert(share);
      CHECK(batch["label"][i].equal(at::tensor({float(3 * i), float(3 * before), share})));
      const at::Tensor expected =
          (whole[i].to(at::kFloat).mul(share) + whole[before].to(at::kFloat).mul(1 - share)).to(at::kByte);
      CHECK(batch["image"][i].equal(expected));
    }
    CHECK(shares.size() == (same ? 1 : 6));
  }
  BetonSample cut = batch_of(path, {{"image", {SimpleRGBImageDecoder{}, CutMix{}, ToTorchImage{false}}},
                                    {"label", {IntDecoder{}, LabelCutMix{.size = {30, 44}}}}});
  for (std::int64_t i = 0; i < 6; ++i) {
    const std::int64_t before = i == 0 ? 5 : i - 1;
    const auto box = shoal::detail::cut_box(1, {30, 44}, sample_key(i));
    at::Tensor expected = whole[i].clone();
    for (std::int64_t y = box.top; y < box.bottom; ++y)
      for (std::int64_t x = box.left; x < box.right; ++x)
        for (std::int64_t c = 0; c < 3; ++c) expected[c][y][x] = whole[before][c][y][x];
    CHECK(cut["image"][i].equal(expected));
    CHECK(cut["label"][i][2].item<float>() == float(box.own_share));
  }
}

TEST_CASE("beton pipeline: shares of mixing are distributed as Beta(alpha, alpha)") {
  for (const double alpha : {0.05, 0.2, 1.0, 4.0}) {
    constexpr std::int64_t kDraws = 20'000;
    double sum = 0, squares = 0;
    SampleRandom random(SampleKey{5});
    for (std::int64_t i = 0; i < kDraws; ++i) {
      const double draw = shoal::detail::beta_draw(random, alpha);
      REQUIRE((draw >= 0 && draw <= 1));
      sum += draw, squares += (draw - 0.5) * (draw - 0.5);
    }
    CAPTURE(alpha);
    CHECK(std::abs(sum / kDraws - 0.5) < 0.015);
    CHECK(std::abs(squares / kDraws - 1 / (4 * (2 * alpha + 1))) < 0.006);
  }
}

TEST_CASE(
    "beton pipeline: a picture and its mask in one group draw alike, whatever stands between; fields alone do not") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {.count = 40}, BetonWriteMode::raw);
  const auto pair = [&](const std::string& group) {
    BetonPipeline image, mask;
    if (!group.empty()) image.emplace_back(DrawGroup{group}), mask.emplace_back(DrawGroup{group});
    for (const BetonOperation& operation :
         BetonPipeline{SimpleRGBImageDecoder{}, RandomHorizontalFlip{}, RandomCrop{.size = {20}}, ColorJitter{},
                       RandomTranslate{3}, RandomVerticalFlip{}, ToTorchImage{}})
      image.push_back(operation);
    for (const BetonOperation& operation :
         BetonPipeline{NDArrayDecoder{}, RandomHorizontalFlip{}, RandomCrop{.size = {20}}, RandomTranslate{3},
                       RandomVerticalFlip{}})
      mask.push_back(operation);
    BetonSample batch = batch_of(path, {{"image", image}, {"mask", mask}}, 40);
    return batch["image"].select(1, 1).equal(batch["mask"]);
  };
  CHECK(pair("pair"));
  CHECK(!pair(""));
}

TEST_CASE("beton pipeline: a PipelineSpec gives a field another name, or makes several outputs of it") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const BetonPipeline crop = {RandomResizedCropRGBImageDecoder{{16}}, RandomHorizontalFlip{}, ToTorchImage{}};
  const auto view = [&](const std::string& group) {
    BetonPipeline pipeline = {PipelineSpec{"image"}};
    if (!group.empty()) pipeline.emplace_back(DrawGroup{group});
    pipeline.insert(pipeline.end(), crop.begin(), crop.end());
    return pipeline;
  };
  BetonSample batch = batch_of(path, {{"first", view("")}, {"second", view("")}, {"image", {}}, {"mask", {}}});
  CHECK(batch.size() == 4);  // and label, score
  CHECK(batch.at("first").sizes() == at::IntArrayRef({6, 3, 16, 16}));
  CHECK(!batch.at("first").equal(batch.at("second")));
  // Views of one group are alike; the field's own pipeline draws as it did without them.
  batch = batch_of(path, {{"first", view("a")}, {"second", view("a")}, {"image", crop}});
  CHECK(batch.at("first").equal(batch.at("second")));
  CHECK(batch.at("image").equal(image_batch(path, crop)));
  CHECK(!batch.at("image").equal(batch.at("first")));
  // Alone it is a name; an output with another field's name takes its place; lengths go with the output.
  batch = batch_of(path, {{"class", {PipelineSpec{"label"}}},
                          {"label", {}},
                          {"score", {PipelineSpec{"label"}, IntDecoder{}}},
                          {"words", {PipelineSpec{"text"}, BytesDecoder{}}}});
  CHECK(batch.at("class").equal(at::arange(6).mul(3)));
  CHECK(batch.at("score").equal(at::arange(6).mul(3).view({6, 1})));
  CHECK(!batch.contains("label"));
  CHECK(batch.at("words.lengths").equal(at::arange(6)));
  const auto refused = [&](const BetonPipelines& pipelines, const std::string& what) {
    CHECK_THROWS_WITH(beton_dataset(path, {.pipelines = pipelines}), ContainsSubstring(what));
  };
  refused({{"view", {PipelineSpec{"images"}}}}, "pipeline of \"view\": ");
  refused({{"label", {IntDecoder{}, PipelineSpec{"label"}}}}, "PipelineSpec: it stands before all others");
  refused({{"view", {PipelineSpec{"label"}, Squeeze{}}}}, "begins with IntDecoder");
}

TEST_CASE("beton pipeline: no memory is allocated for a sample once a thread has seen some") {
  const TemporaryFolder folder;
  for (const BetonWriteMode mode : {BetonWriteMode::raw, BetonWriteMode::jpg}) {
    const std::string path = written(folder, {.count = 64, .height = 70, .width = 80}, mode);
    const auto count = [&](const BetonDataset<>& dataset, std::int64_t samples) {
      const auto indices = counted(samples);
      const std::int64_t before = allocations;
      (void)dataset.get_batch(indices);
      return allocations - before;
    };
    for (const BetonPipeline& image :
         {BetonPipeline{SimpleRGBImageDecoder{}, RandomHorizontalFlip{}, kNormalize, ToTorchImage{}},
          BetonPipeline{RandomResizedCropRGBImageDecoder{.size = {32}, .scaled = false}, RandomTranslate{2},
                        ColorJitter{{0.4}, {0.4}, {0.4}}, RandomHorizontalFlip{}, ImageMixup{}, kNormalize,
                        ToTorchImage{false}},
          BetonPipeline{RandomResizedCropRGBImageDecoder{{32}}, CutMix{}}}) {
      for (const BetonPipeline& mask :
           {BetonPipeline{NDArrayDecoder{}, Convert{BetonNumber::int64}},
            BetonPipeline{NDArrayDecoder{}, RandomHorizontalFlip{}, RandomResizedCrop{{20, 30}}, RandomTranslate{3}}}) {
        const auto dataset = beton_dataset(path, {.pipelines = {{"image", image},
                                                                {"label", {IntDecoder{}, LabelMixup{}}},
                                                                {"score", {FloatDecoder{}}},
                                                                {"mask", mask},
                                                                {"text", {BytesDecoder{}}}}});
        (void)count(dataset, 64);
        (void)count(dataset, 8);
        const std::int64_t few = count(dataset, 8);
        CHECK(few > 0);  // it does count
        CHECK(count(dataset, 64) == few);
      }
    }
  }
}

TEST_CASE("beton pipeline: ReplaceLabel and Poison name samples of the file, whichever of them the data set has") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {}, BetonWriteMode::raw);
  const Poison poison{.mask = at::full({3, 30, 44}, 200.0F), .alpha = at::ones({30, 44}), .indices = {4, 2}};
  const BetonPipelines pipelines = {
      {"label", {IntDecoder{}, ReplaceLabel{{4, 2}, 77}}}, {"image", {SimpleRGBImageDecoder{}, poison}}, {"text", {}}};
  const auto dataset = beton_dataset(path, {.indices = {4, 1, 5, 4}, .pipelines = pipelines});
  BetonSample batch = dataset.get_batch(counted(4));
  CHECK(batch["label"].equal(at::tensor({77, 3, 15, 77}, at::kLong).unsqueeze(1)));
  for (std::int64_t i = 0; i < 4; ++i) CHECK(batch["image"][i].eq(200).all().item<bool>() == (i == 0 || i == 3));
}
