#include <shoal/internal/workers/images/formats/png.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <shoal/internal/workers/images/formats/planes.h>
#include <shoal/internal/workers/images/formats/png_reader.h>
#include <shoal/workers/data/sample_warnings.h>

#include <vector>

namespace shoal::png {
namespace {

ImageSize read_header(Reader& reader, const std::string& name, const DecodeOptions& options) {
  reader.read_header();
  const ImageSize size{reader.height(), reader.width()};
  check_pixels(size, name, options);
  return size;
}

void read_rows(Reader& reader, std::uint8_t* pixels, const std::string& name, const DecodeOptions& options) {
  reader.read_rows(pixels);
  if (!reader.has_no_end()) return;
  if (options.strict) reader.report();
  warn_of_sample(fmt::format("{}: this PNG has no end: {}", name, reader.text()));
}

}  // namespace

at::Tensor decode(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  Reader reader(bytes, name);
  const ImageSize size = read_header(reader, name, options);
  at::Tensor image = at::empty({3, size.height, size.width}, at::TensorOptions(at::kByte));
  const Planes planes{image.mutable_data_ptr<std::uint8_t>(), std::size_t(size.height), std::size_t(size.width)};
  std::vector<std::uint8_t> pixels(reader.row_bytes() * planes.height);
  read_rows(reader, pixels.data(), name, options);
  for (std::size_t y = 0; y < planes.height; ++y)
    planes.put_row(y, pixels.data() + y * reader.row_bytes(), reader.channels());
  return image;
}

at::Tensor decode_numbers(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  Reader reader(bytes, name, Reader::Values::numbers);
  const ImageSize size = read_header(reader, name, options);
  at::Tensor numbers = at::empty({size.height, size.width}, at::TensorOptions(at::kByte));
  read_rows(reader, numbers.mutable_data_ptr<std::uint8_t>(), name, options);
  return numbers;
}

ImageSize size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeOptions& options) {
  Reader reader(bytes, name);
  return read_header(reader, name, options);
}

}  // namespace shoal::png
