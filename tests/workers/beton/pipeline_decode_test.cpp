// Decoders of pictures: parts of JPEGs, and crops, against the whole picture.
#include <ATen/ATen.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/internal/workers/beton/pipeline/field_plan.h>
#include <shoal/workers/transforms/transforms.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/workers/beton/pipeline_fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// Waves of 100 pixels and more, in other directions in each colour, without an edge anywhere.
struct Waves {
  std::int64_t count = 12, height = 403, width = 517;
  struct Sample {
    at::Tensor image;
  };
  std::int64_t size() const { return count; }
  Sample get(std::int64_t i) const {
    const at::Tensor y = at::arange(height, at::kDouble).view({1, height, 1});
    const at::Tensor x = at::arange(width, at::kDouble).view({1, 1, width});
    const at::Tensor color = at::arange(3, at::kDouble).view({3, 1, 1});
    const at::Tensor wave = ((x * (color + 1) + y * (3 - color)) / 50 + double(i)).sin();
    return {(wave * 100 + 128).round().to(at::kByte)};
  }
};

/// How far two pictures of bytes are apart, at most and in the mean.
struct Apart {
  double most = 0, mean = 0;
  Apart() = default;
  Apart(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor distance = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
    most = distance.max().item<double>(), mean = distance.mean().item<double>();
  }
  void widen(const Apart& other) { most = std::max(most, other.most), mean = std::max(mean, other.mean); }
};

}  // namespace

TEST_CASE("beton pipeline: any part of a JPEG has the pixels of the whole one, whatever the kind of JPEG") {
  const at::Tensor picture = smooth_image(83, 117, 3);
  const at::Tensor noise = at::randint(0, 256, {3, 83, 117}, at::kByte);
  const auto encoded = [](const at::Tensor& image) {
    const at::Tensor rows = image.permute({1, 2, 0}).contiguous();
    return shoal::detail::encode_jpeg_rows({rows.const_data_ptr<std::uint8_t>(), rows.nbytes()}, 117, 83, 90);  // 4:2:0
  };
  std::vector<Bytes> jpegs = {encoded(picture), encoded(noise), progressive_jpeg_of(noise),
                              jpeg_of(noise.narrow(0, 0, 1).contiguous(), 95, JpegColor::grey)};
  for (const int across : {1, 2, 4})
    for (const int down : {1, 2, 4})
      if (across * down <= 8) jpegs.push_back(sampled_jpeg_of(noise, across, down));  // libjpeg's limit
  // Behind a row of groups, and half of one.
  for (const int interval : {8, 4}) jpegs.push_back(restarting_jpeg_of(noise, interval));
  for (const Bytes& jpeg : jpegs)
    for (const int denominator : {1, 2, 4, 8}) {
      const auto size = shoal::detail::scaled_extent(117, 83, denominator);
      const auto part_of = [&](const shoal::detail::JpegPart& part) {
        at::Tensor pixels = at::zeros({part.height, part.width, 3}, at::kByte);
        struct Out {
          std::uint8_t* data;
          std::size_t stride;
        } out{pixels.mutable_data_ptr<std::uint8_t>(), std::size_t(part.width) * 3};
        shoal::detail::decode_jpeg_part(jpeg, 117, 83, denominator, part,
                                        {&out,
                                         [](void* context, std::size_t y, const std::uint8_t* row) {
                                           const auto& its = *static_cast<Out*>(context);
                                           std::memcpy(its.data + y * its.stride, row, its.stride);
                                         }},
                                        "it");
        return pixels;
      };
      const at::Tensor whole = part_of({0, 0, size.height, size.width});
      if (denominator == 1) {
        at::Tensor rows = at::empty({83, 117, 3}, at::kByte);
        shoal::detail::decode_jpeg_rows(jpeg, 117, 83, {rows.mutable_data_ptr<std::uint8_t>(), rows.nbytes()}, "it");
        CHECK(whole.equal(rows));
      }
      SampleRandom random(SampleKey{9, 9, std::uint64_t(denominator)});
      for (int i = 0; i < 60; ++i) {
        shoal::detail::JpegPart part;
        part.top = random.below(size.height), part.left = random.below(size.width);
        part.height = 1 + random.below(size.height - part.top), part.width = 1 + random.below(size.width - part.left);
        CAPTURE(denominator, part.top, part.left, part.height, part.width);
        REQUIRE(part_of(part).equal(whole.narrow(0, part.top, part.height).narrow(1, part.left, part.width)));
      }
      CHECK_THROWS_AS(part_of({0, 1, 1, size.width}), std::invalid_argument);
    }
}

TEST_CASE("beton pipeline: RandomResizedCropRGBImageDecoder is the transform of the whole picture") {
  const TemporaryFolder folder;
  const PipelinePictures pictures{.count = 12, .height = 190, .width = 250};
  for (const BetonWriteMode mode : {BetonWriteMode::raw, BetonWriteMode::jpg}) {
    const std::string path = written(folder, pictures, mode);
    const at::Tensor whole = batch_of(path, {}, 12).at("image");
    const EpochScope scope(3, 1);
    const RandomResizedCrop crop{.size = {20, 24}, .scale = {0.3, 1}};
    // Nothing of a raw picture is scaled.
    const at::Tensor batch =
        image_batch(path,
                    {RandomResizedCropRGBImageDecoder{
                         .size = crop.size, .scale = crop.scale, .scaled = mode == BetonWriteMode::raw},
                     ToTorchImage{false}},
                    12);
    for (std::int64_t i = 0; i < 12; ++i) {
      at::Tensor expected = at::empty({3, 20, 24}, at::kByte);
      TransformScratch scratch;
      crop.apply(whole[i].const_data_ptr<std::uint8_t>(), {3, 190, 250}, expected.mutable_data_ptr<std::uint8_t>(),
                 {sample_key(i), shoal::detail::draw_number("image", "RandomResizedCrop", 0)}, scratch);
      CHECK(batch[i].equal(expected));
    }
  }
}

TEST_CASE("beton pipeline: crops of JPEGs that are decoded smaller are those of the whole picture, to a few units") {
  const TemporaryFolder folder;
  const std::string path = folder.file("waves.beton");
  BetonWriter(path, {.page_bytes = 2U << 20U, .images = {.write_mode = BetonWriteMode::jpg}}).write(Waves{});
  const EpochScope scope(3, 1);
  const auto apart = [&](const auto& decoder_of) {
    const auto batch_by = [&](bool scaled) {
      return beton_dataset(path, {.pipelines = {{"image", {decoder_of(scaled), ToTorchImage{false}}}}})
          .get_batch(counted(12))
          .at("image");
    };
    const at::Tensor exact = batch_by(false), scaled = batch_by(true);
    Apart most;
    for (std::int64_t i = 0; i < 12; ++i) most.widen(Apart(exact[i], scaled[i]));
    return most;
  };
  // Sizes for which parts are decoded at 1/8, 1/4 and 1/2; parts of all sizes begin and end anywhere.
  for (const ImageSize& size : {ImageSize{24, 20}, ImageSize{40, 44}, ImageSize{120, 150}}) {
    const Apart random = apart([&](bool scaled) {
      return RandomResizedCropRGBImageDecoder{.size = size, .scale = {0.5, 1}, .scaled = scaled};
    });
    CAPTURE(size.height, random.most, random.mean);
    CHECK((random.most > 0 && random.most <= 10));
    CHECK(random.mean < 2);
    for (const double ratio : {1.0, 0.9, 0.83}) {
      const Apart center =
          apart([&](bool scaled) { return CenterCropRGBImageDecoder{.size = size, .ratio = ratio, .scaled = scaled}; });
      CAPTURE(ratio, center.most, center.mean);
      CHECK((center.most > 0 && center.most <= 10));
      CHECK(center.mean < 2);
    }
  }
}

TEST_CASE("beton pipeline: CenterCropRGBImageDecoder is the middle square, resized") {
  const TemporaryFolder folder;
  const std::string path = written(folder, {.height = 60, .width = 90}, BetonWriteMode::raw);
  const at::Tensor whole = batch_of(path, {}).at("image");
  const at::Tensor batch = image_batch(path, {CenterCropRGBImageDecoder{.size = {32}, .ratio = 0.8}, ToTorchImage{}});
  for (std::int64_t i = 0; i < 6; ++i) {
    at::Tensor expected = at::empty({3, 32, 32}, at::kByte);
    TransformScratch scratch;
    resize_part(whole[i].const_data_ptr<std::uint8_t>(), {3, 60, 90}, {6, 21, 48, 48},
                expected.mutable_data_ptr<std::uint8_t>(), {32, 32}, true, scratch);
    CHECK(batch[i].equal(expected));
  }
}
