#include <shoal/internal/workers/beton/pipeline/picture_source.h>

#include <fmt/format.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <string>
#include <utility>

namespace shoal::detail {
namespace {

std::string where(const BetonPlace& place, std::size_t field) {
  return fmt::format("{}: sample {}, field {:?}", place.file->path(), place.row, place.file->fields()[field].name);
}

// The smallest of 1/8, 1/4 and 1/2 at which the part is not smaller than what comes out.
int denominator_for(const PictureCrop& crop) {
  for (int denominator = 8; crop.scaled && denominator > 1; denominator /= 2)
    if (crop.part.height >= crop.size.height * denominator && crop.part.width >= crop.size.width * denominator)
      return denominator;
  return 1;
}

// Rows or columns from `start` on of a picture that is decoded at 1/denominator: the pixels in which they lie, and where
// in these. A pixel of the smaller picture is the mean of `denominator` of the larger one, at the same place.
struct ScaledRange {
  std::int64_t first, count;
  double start, extent;
};
ScaledRange scaled_range(std::int64_t start, std::int64_t count, int denominator) {
  const std::int64_t first = start / denominator, end = (start + count + denominator - 1) / denominator;
  const double scale = 1.0 / denominator;  // exact
  return {first, end - first, double(start) * scale - double(first), double(count) * scale};
}

}  // namespace

PictureSource::PictureSource(const BetonPlace& place, std::size_t field)
    : place_(place), field_(field), image_(place.file->image(place.row, field)) {}

void PictureSource::check() const {
  if (image_.mode != BetonImageMode::jpg) return;
  named([&] { check_jpeg_size(image_.bytes, image_.width, image_.height, {}); });
}

/// The text that names the sample is made for errors alone: it would be memory for each picture.
template <class Work>
void PictureSource::named(Work&& work) const {
  try {
    work();
  } catch (const DatasetError& error) {
    throw DatasetError(where(place_, field_) + error.what());
  }
}

void PictureSource::prefetch() const {
  // Eight lines: behind them the CPU has seen by itself where this goes. With more it waits here for a place among the
  // lines that are on their way: a whole page took a quarter of a batch's time. Not into the nearest cache, which the
  // picture before has: 32 x 32 as floats 1.31 us a picture, by eight lines 1.09, without 1.42 (Xeon, 2 MiB of L2).
  constexpr std::size_t kLine = 64, kMost = 8 * kLine;
  constexpr int kToRead = 0, kSecondCache = 2;
  const std::size_t end = std::min(image_.bytes.size(), kMost);
  for (std::size_t at = 0; at < end; at += kLine) __builtin_prefetch(image_.bytes.data() + at, kToRead, kSecondCache);
}

void PictureSource::decode_into(PictureTarget& target) const {
  if (image_.mode == BetonImageMode::raw) {
    target.put_picture(image_.bytes.data());
    return;
  }
  const JpegRowSink sink{&target, [](void* context, std::size_t y, const std::uint8_t* pixels) {
                           static_cast<PictureTarget*>(context)->put_pixels(y, pixels);
                         }};
  named([&] {
    decode_jpeg_part(image_.bytes, image_.width, image_.height, 1, {0, 0, image_.height, image_.width}, sink, {});
  });
}

void PictureSource::decode(std::uint8_t* planes) const {
  decode_region({0, 0, image_.height, image_.width}, 1, planes);
}

void PictureSource::decode_region(const ImagePart& region, int denominator, std::uint8_t* planes) const {
  Planes to{planes, std::size_t(region.height), std::size_t(region.width)};
  if (image_.mode == BetonImageMode::raw) {
    const std::size_t stride = std::size_t(image_.width) * 3;
    const std::uint8_t* corner = image_.bytes.data() + std::size_t(region.top) * stride + std::size_t(region.left) * 3;
    for (std::size_t y = 0; y < to.height; ++y) to.put_row(y, corner + y * stride);
    return;
  }
  const JpegRowSink sink{&to, [](void* context, std::size_t y, const std::uint8_t* pixels) {
                           static_cast<const Planes*>(context)->put_row(y, pixels);
                         }};
  named([&] {
    decode_jpeg_part(image_.bytes, image_.width, image_.height, denominator,
                     {region.top, region.left, region.height, region.width}, sink, {});
  });
}

void PictureSource::decode(const PictureCrop& crop, std::uint8_t* planes, TransformScratch& scratch) const {
  const int denominator = image_.mode == BetonImageMode::jpg ? denominator_for(crop) : 1;
  const ScaledRange rows = scaled_range(crop.part.top, crop.part.height, denominator);
  const ScaledRange columns = scaled_range(crop.part.left, crop.part.width, denominator);
  const ImagePart region{rows.first, columns.first, rows.count, columns.count};
  const auto is_whole = [](const ScaledRange& range, std::int64_t size) {
    return range.count == size && range.extent == double(size);
  };
  if (is_whole(rows, crop.size.height) && is_whole(columns, crop.size.width))
    return decode_region(region, denominator, planes);
  const TransformScratch::Frame frame(scratch);
  const ImageShape shape{3, region.height, region.width};
  auto* decoded = scratch.take<std::uint8_t>(shape.bytes());
  decode_region(region, denominator, decoded);
  resize_box(decoded, shape, {rows.start, columns.start, rows.extent, columns.extent}, planes, crop.size, scratch);
}

}  // namespace shoal::detail
