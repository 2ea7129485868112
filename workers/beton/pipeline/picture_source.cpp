#include <shoal/internal/workers/beton/pipeline/picture_source.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/prefetch.h>
#include <shoal/internal/workers/beton/decode/picture_planes.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/internal/workers/transforms/weights/resized_pixels.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <string>
#include <utility>

namespace shoal::detail {
namespace {

std::string begun(const BetonPlace& place, std::size_t field) {
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

/// How a crop is taken: a region of the picture decoded at 1/denominator, and the box in it that is resized.
struct CropPlan {
  CropPlan(const PictureCrop& crop, int denominator) : denominator(denominator) {
    const ScaledRange rows = scaled_range(crop.part.top, crop.part.height, denominator);
    const ScaledRange columns = scaled_range(crop.part.left, crop.part.width, denominator);
    region = {rows.first, columns.first, rows.count, columns.count};
    box = {rows.start, columns.start, rows.extent, columns.extent};
    const auto is_whole = [](const ScaledRange& range, std::int64_t size) {
      return range.count == size && range.extent == double(size);
    };
    has_its_size = is_whole(rows, crop.size.height) && is_whole(columns, crop.size.width);
  }
  int denominator;
  ImagePart region;
  ImageBox box;
  bool has_its_size;  // nothing is resized
};

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
    throw DatasetError(begun(place_, field_) + error.what());
  }
}

void PictureSource::prefetch() const {
  // Eight lines: behind them the CPU has seen by itself where this goes. With more it waits here for a place among the
  // lines that are on their way: a whole page took a quarter of a batch's time. Not into the nearest cache, which the
  // picture before has: 32 x 32 as floats 1.31 us a picture, by eight lines 1.09, without 1.42 (Xeon, 2 MiB of L2).
  constexpr std::size_t kLine = 64, kMost = 8 * kLine;
  const std::size_t end = std::min(image_.bytes.size(), kMost);
  for (std::size_t at = 0; at < end; at += kLine) prefetch_to_second_cache(image_.bytes.data() + at);
}

/// Calls put(y, pixels, readable) for the region's rows: pixels side by side, and how many bytes from there on may be read,
/// those of the row and others. `put` does not throw.
template <class Put>
void PictureSource::for_each_row(const ImagePart& region, int denominator, Put&& put) const {
  if (image_.mode == BetonImageMode::raw) {
    const std::size_t stride = std::size_t(image_.width) * 3;
    const std::uint8_t* end = image_.bytes.data() + image_.bytes.size();
    const std::uint8_t* row = image_.bytes.data() + std::size_t(region.top) * stride + std::size_t(region.left) * 3;
    for (std::size_t y = 0; y < std::size_t(region.height); ++y, row += stride) put(y, row, std::size_t(end - row));
    return;
  }
  struct Context {
    Put& put;
    std::size_t readable;
  } context{put, std::size_t(region.width) * 3 + JpegRowSink::kBehind};
  const JpegRowSink sink{&context, [](void* of_sink, std::size_t y, const std::uint8_t* pixels) {
                           const auto& its = *static_cast<const Context*>(of_sink);
                           its.put(y, pixels, its.readable);
                         }};
  named([&] {
    decode_jpeg_part(image_.bytes, image_.width, image_.height, denominator,
                     {region.top, region.left, region.height, region.width}, sink, {});
  });
}

void PictureSource::decode_into(PictureTarget& target) const {
  if (image_.mode == BetonImageMode::raw) return target.put_picture(image_.bytes.data());
  const JpegHalfColorSink half_colors{&target,
                                      [](void* its, std::size_t y, const std::uint8_t* luma, const HalfColors& colors) {
                                        static_cast<PictureTarget*>(its)->put_half_colors(y, luma, colors);
                                      },
                                      [](void* its, std::size_t y, std::size_t count, std::size_t steps) {
                                        return static_cast<const PictureTarget*>(its)->ahead(y, count, steps);
                                      }};
  const JpegRowSink pixels{&target, [](void* its, std::size_t y, const std::uint8_t* row) {
                             static_cast<PictureTarget*>(its)->put_pixels(y, row);
                           }};
  named([&] { decode_whole_jpeg(image_.bytes, image_.width, image_.height, half_colors, pixels, {}); });
}

void PictureSource::decode_into(PictureTarget& target, const PictureCrop& crop, TransformScratch& scratch) const {
  const CropPlan plan(crop, denominator_of(crop));
  if (plan.has_its_size)
    return for_each_row(plan.region, plan.denominator,
                        [&](std::size_t y, const std::uint8_t* pixels, std::size_t) { target.put_pixels(y, pixels); });
  const TransformScratch::Frame frame(scratch);
  ResizedPixels resized({plan.box.top, plan.box.height, plan.region.height},
                        {plan.box.left, plan.box.width, plan.region.width}, crop.size, scratch);
  auto* row = scratch.take<std::uint8_t>(std::size_t(crop.size.width) * 3);
  for_each_row(plan.region, plan.denominator, [&](std::size_t, const std::uint8_t* pixels, std::size_t readable) {
    resized.feed(pixels, readable, [&](std::size_t y, const auto& write) {
      if (std::uint8_t* place = target.place_of(y)) return write(place);
      write(row);
      target.put_pixels(y, row);
    });
  });
}

int PictureSource::denominator_of(const PictureCrop& crop) const {
  return image_.mode == BetonImageMode::jpg ? denominator_for(crop) : 1;
}

void PictureSource::decode(std::uint8_t* planes) const {
  named([&] { decode_picture_planes(image_, planes, {}); });
}

void PictureSource::decode_region(const ImagePart& region, int denominator, std::uint8_t* planes) const {
  const Planes to{planes, std::size_t(region.height), std::size_t(region.width)};
  for_each_row(region, denominator,
               [&](std::size_t y, const std::uint8_t* pixels, std::size_t) { to.put_row(y, pixels); });
}

void PictureSource::decode(const PictureCrop& crop, std::uint8_t* planes, TransformScratch& scratch) const {
  const CropPlan plan(crop, denominator_of(crop));
  if (plan.has_its_size) return decode_region(plan.region, plan.denominator, planes);
  const TransformScratch::Frame frame(scratch);
  const ImageShape shape{3, plan.region.height, plan.region.width};
  auto* decoded = scratch.take<std::uint8_t>(shape.bytes());
  decode_region(plan.region, plan.denominator, decoded);
  resize_box(decoded, shape, plan.box, planes, crop.size, scratch);
}

}  // namespace shoal::detail
