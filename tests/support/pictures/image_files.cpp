#include "tests/support/pictures/image_files.h"

#include <ATen/ops/empty.h>
#include <jpeglib.h>
#include <png.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>

namespace shoal::test {
namespace {

Bytes interleaved(const at::Tensor& image) {
  const at::Tensor pixels = image.permute({1, 2, 0}).contiguous();
  const auto* first = pixels.const_data_ptr<std::uint8_t>();
  return {first, first + pixels.numel()};
}

enum class Scans { one, progressive };

struct Sampling {
  int across = 2, down = 2;  // brightness for one of the colours
  int restart_interval = 0;
  bool has_tables_of_its_own = false;
};

Bytes write_jpeg(const at::Tensor& image, int quality, JpegColor color, Scans scans, const Sampling& sampling = {}) {
  jpeg_error_mgr errors;
  jpeg_compress_struct info;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_height = JDIMENSION(image.size(1));
  info.image_width = JDIMENSION(image.size(2));
  info.input_components = int(image.size(0));
  info.in_color_space = color == JpegColor::grey ? JCS_GRAYSCALE : color == JpegColor::cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  if (info.jpeg_color_space == JCS_YCbCr) {
    info.comp_info[0].h_samp_factor = sampling.across;
    info.comp_info[0].v_samp_factor = sampling.down;
  }
  info.restart_interval = unsigned(sampling.restart_interval);
  info.optimize_coding = sampling.has_tables_of_its_own ? TRUE : FALSE;
  if (scans == Scans::progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  Bytes pixels = interleaved(image);
  const std::size_t row = std::size_t(image.size(0) * image.size(2));
  for (std::size_t y = 0; y < info.image_height; ++y) {
    JSAMPROW line = pixels.data() + y * row;
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(out, out + size);
  std::free(out);
  return bytes;
}

}  // namespace

Bytes jpeg_of(const at::Tensor& image, int quality, JpegColor color) {
  return write_jpeg(image, quality, color, Scans::one);
}
Bytes sampled_jpeg_of(const at::Tensor& image, int across, int down) {
  return write_jpeg(image, 95, JpegColor::rgb, Scans::one, {across, down});
}
Bytes restarting_jpeg_of(const at::Tensor& image, int interval) {
  return write_jpeg(image, 95, JpegColor::rgb, Scans::one, {.restart_interval = interval});
}
Bytes optimized_jpeg_of(const at::Tensor& image, int quality) {
  return write_jpeg(image, quality, JpegColor::rgb, Scans::one, {.has_tables_of_its_own = true});
}
Bytes progressive_jpeg_of(const at::Tensor& image) { return write_jpeg(image, 95, JpegColor::rgb, Scans::progressive); }

at::Tensor pixels_by_libjpeg(const Bytes& jpeg) {
  jpeg_error_mgr errors;
  jpeg_decompress_struct info;
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, jpeg.data(), jpeg.size());
  jpeg_read_header(&info, TRUE);
  jpeg_start_decompress(&info);
  at::Tensor pixels =
      at::empty({info.output_height, info.output_width, info.output_components}, at::TensorOptions(at::kByte));
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels[info.output_scanline].mutable_data_ptr<std::uint8_t>();
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return pixels.permute({2, 0, 1}).contiguous();
}

std::uint32_t crc32_of(std::span<const std::uint8_t> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

Bytes png_of(const at::Tensor& image, PngKind kind) {
  const std::size_t height = std::size_t(image.size(1)), width = std::size_t(image.size(2));
  Bytes pixels = interleaved(image);
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp writer, png_bytep data, std::size_t size) {
        auto& all = *static_cast<Bytes*>(png_get_io_ptr(writer));
        all.insert(all.end(), data, data + size);
      },
      [](png_structp) {});
  int type = PNG_COLOR_TYPE_RGB, bits = 8;
  std::size_t row = 3 * width;
  std::vector<png_color> palette;
  if (kind == PngKind::grey) {
    type = PNG_COLOR_TYPE_GRAY;
    row = width;
  } else if (kind == PngKind::rgba) {
    type = PNG_COLOR_TYPE_RGBA;
    Bytes with_alpha;
    for (std::size_t i = 0; i < pixels.size(); i += 3) {
      with_alpha.insert(with_alpha.end(), {pixels[i], pixels[i + 1], pixels[i + 2], std::uint8_t(i)});
    }
    pixels = with_alpha;
    row = 4 * width;
  } else if (kind == PngKind::rgb16) {
    bits = 16;
    Bytes wide;
    for (const std::uint8_t value : pixels) wide.insert(wide.end(), {value, 0x7f});
    pixels = wide;
    row = 6 * width;
  } else if (kind == PngKind::palette) {
    type = PNG_COLOR_TYPE_PALETTE;
    std::map<std::uint32_t, std::uint8_t> numbers;
    Bytes indices;
    for (std::size_t i = 0; i < pixels.size(); i += 3) {
      const std::uint32_t key = std::uint32_t(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
      auto [found, is_new] = numbers.emplace(key, std::uint8_t(numbers.size()));
      if (is_new) palette.push_back({pixels[i], pixels[i + 1], pixels[i + 2]});
      indices.push_back(found->second);
    }
    if (palette.size() > 256) throw std::invalid_argument("more than 256 colours");
    pixels = indices;
    row = width;
  }
  png_set_IHDR(png, info, png_uint_32(width), png_uint_32(height), bits, type,
               kind == PngKind::interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), int(palette.size()));
  std::vector<png_bytep> rows;
  for (std::size_t y = 0; y < height; ++y) rows.push_back(pixels.data() + y * row);
  png_write_info(png, info);
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

at::Tensor smooth_image(std::int64_t height, std::int64_t width, int phase) {
  at::Tensor image = at::empty({3, height, width}, at::TensorOptions(at::kByte));
  auto* out = image.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        *out++ = std::uint8_t((40 * c + phase + 100 * y / height + 80 * x / width) % 256);
      }
    }
  }
  return image;
}

void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

}  // namespace shoal::test
