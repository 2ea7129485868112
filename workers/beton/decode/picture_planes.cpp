#include <shoal/internal/workers/beton/decode/picture_planes.h>

#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/internal/workers/transforms/loops/pixel_loops.h>

#include <cstddef>
#include <vector>

namespace shoal::detail {
namespace {

struct PlanesOfJpeg {
  Planes planes;
  std::uint8_t* colors[3];  // a row of each
};

}  // namespace

void decode_picture_planes(const BetonImage& image, std::uint8_t* planes, const std::string& name) {
  const auto height = std::size_t(image.height), width = std::size_t(image.width);
  const Planes to{planes, height, width};
  if (image.mode == BetonImageMode::raw) {
    for (std::size_t y = 0; y < height; ++y) to.put_row(y, image.bytes.data() + y * width * 3);
    return;
  }
  const std::size_t row = HalfColors::rounded_up(width);
  thread_local std::vector<std::uint8_t> rows;
  if (rows.size() < 3 * row) rows.resize(3 * row);
  PlanesOfJpeg its{to, {rows.data(), rows.data() + row, rows.data() + 2 * row}};
  const JpegHalfColorSink half_colors{
      &its, [](void* context, std::size_t y, const std::uint8_t* luma, const HalfColors& half) {
        const auto& out = *static_cast<const PlanesOfJpeg*>(context);
        PixelLoops::best().full_colors(luma, half, out.colors, out.planes.width);
        out.planes.put_color_rows(y, out.colors);
      }};
  const JpegRowSink pixels{&its, [](void* context, std::size_t y, const std::uint8_t* of_row) {
                             static_cast<const PlanesOfJpeg*>(context)->planes.put_row(y, of_row);
                           }};
  decode_whole_jpeg(image.bytes, image.width, image.height, half_colors, pixels, name);
}

}  // namespace shoal::detail
