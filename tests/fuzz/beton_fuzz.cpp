// Fuzz target: every number of a .beton file is hostile. The first byte chooses a file with all types of fields, whose
// bytes the rest of the input changes (place, place, value), or none: then the input is the file. Reading it must end in
// values that lie inside the file, or in a DatasetError.
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/internal/workers/beton/format/beton_view.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace shoal;
using namespace shoal::detail;

namespace {

constexpr std::size_t kRows = 2;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// Two samples; picture 0 is a JPEG, picture 1 raw. The table in the order of places, or the other way round.
std::vector<std::uint8_t> whole_file(bool is_sorted) {
  std::vector<BetonField> fields = {
      {.name = "image", .type = BetonType::rgb_image}, {.name = "label", .type = BetonType::integer},
      {.name = "score", .type = BetonType::real},      {.name = "blob", .type = BetonType::bytes},
      {.name = "text", .type = BetonType::json},       {.name = "vec", .type = BetonType::tensor}};
  fields[5].shape = {2, 3};
  fields[5].dtype = dtype_of_code("<f4");
  for (BetonField& field : fields) set_cell(field);
  const std::size_t record = lay_out_record(fields), meta = kBetonHeaderBytes + kBetonDescriptorBytes * fields.size();
  std::vector<std::uint8_t> file(meta + kRows * record);
  std::vector<BetonRegion> regions;
  const auto add = [&](std::size_t row, std::size_t pointer, const std::vector<std::uint8_t>& bytes) {
    store64(file.data() + meta + row * record + pointer, file.size());
    regions.push_back({row, file.size(), bytes.size()});
    file.insert(file.end(), bytes.begin(), bytes.end());
  };
  // Noise, of two rows of blocks and more, the last of each not whole.
  constexpr std::size_t kWidth = 19, kHeight = 37;
  std::vector<std::uint8_t> pixels(kWidth * kHeight * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::uint8_t(i * i * 7 + i / 5);
  for (std::size_t row = 0; row < kRows; ++row) {
    std::uint8_t* image = file.data() + meta + row * record;
    image[0] = std::uint8_t(row);
    store16(image + 1, kWidth);
    store16(image + 3, kHeight);
    store64(file.data() + meta + row * record + fields[3].cell_offset + 8, 5);
    store64(file.data() + meta + row * record + fields[4].cell_offset + 8, 3);
    add(row, 5, row == 0 ? encode_jpeg_rows(pixels, kWidth, kHeight, 50) : pixels);
    add(row, fields[3].cell_offset, {1, 2, 3, 4, 5});
    add(row, fields[4].cell_offset, {'4', '2', 0});
    add(row, fields[5].cell_offset, std::vector<std::uint8_t>(24, 7));
  }
  const std::size_t table = file.size();
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const BetonRegion& region = regions[is_sorted ? i : regions.size() - 1 - i];
    file.resize(file.size() + kBetonRegionBytes);
    std::uint8_t* entry = file.data() + file.size() - kBetonRegionBytes;
    store64(entry, region.sample);
    store64(entry + 8, region.place);
    store64(entry + 16, region.bytes);
  }
  for (std::size_t i = 0; i < fields.size(); ++i)
    store_descriptor(file.data() + kBetonHeaderBytes + i * kBetonDescriptorBytes, fields[i]);
  store_header(file.data(),
               {kBetonVersion, std::uint16_t(fields.size()), std::uint32_t(kBetonSmallestPage), kRows, table});
  return file;
}

/// The bytes lie in the file, and reading them is well: a sanitizer looks on.
void read(const BetonView& view, std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::uint8_t* begin = view.file().data();
  if (bytes.data() < begin || bytes.data() + bytes.size() > begin + view.file().size())
    fail("a value outside the file");
  unsigned sum = 0;
  for (const std::uint8_t byte : bytes) sum += byte;
  volatile unsigned seen = sum;
  (void)seen;
}

/// All that a loop over half of the colours may touch.
void read_half_colors(const BetonImage& image) {
  auto width = std::size_t(image.width);
  const JpegHalfColorSink half_colors{&width,
                                      [](void* context, std::size_t, const std::uint8_t* luma, const HalfColors& its) {
                                        const std::size_t pixels = *static_cast<std::size_t*>(context);
                                        unsigned sum = 0;
                                        for (std::size_t i = 0; i < HalfColors::rounded_up(pixels); ++i) sum += luma[i];
                                        for (const auto* row : {its.near_blue, its.far_blue, its.near_red, its.far_red})
                                          for (std::size_t i = 0; i < 1 + (pixels + 1) / 2 + HalfColors::kBehind; ++i)
                                            sum += (row - 1)[i];
                                        volatile unsigned seen = sum;
                                        (void)seen;
                                      }};
  const JpegRowSink pixels{nullptr, [](void*, std::size_t, const std::uint8_t*) {}};
  decode_whole_jpeg(image.bytes, image.width, image.height, half_colors, pixels, "fuzz");
}

/// The last rows: what lies above is skipped.
void read_last_rows(const BetonImage& image) {
  const std::int64_t rows = std::min<std::int64_t>(image.height, 5);
  const JpegRowSink nobody{nullptr, [](void*, std::size_t, const std::uint8_t*) {}};
  decode_jpeg_part(image.bytes, image.width, image.height, 1, {image.height - rows, 0, rows, image.width}, nobody,
                   "fuzz");
}

void read_value(const BetonView& view, std::int64_t row, std::size_t f) {
  switch (view.fields()[f].type) {
    case BetonType::integer:
      return (void)view.integer(row, f);
    case BetonType::real:
      return (void)view.real(row, f);
    case BetonType::bytes:
      return read(view, view.bytes(row, f));
    case BetonType::json: {
      const auto text = view.json(row, f);
      return read(view, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    }
    case BetonType::ndarray:
    case BetonType::tensor:
      return read(view, view.array(row, f));
    case BetonType::custom:
      return read(view, view.custom(row, f));
    case BetonType::rgb_image: {
      const BetonImage image = view.image(row, f);
      read(view, image.bytes);
      if (image.mode != BetonImageMode::jpg) return;
      check_jpeg_size(image.bytes, image.width, image.height, "fuzz");
      if (image.width * image.height > 1'000'000) return;  // as it says itself: slow, not wrong
      for (const auto& part_of : {&read_half_colors, &read_last_rows}) try {
          part_of(image);
        } catch (const DatasetError&) {  // as the last one does, then
        }
      std::vector<std::uint8_t> pixels(std::size_t(image.width * image.height) * 3);
      decode_jpeg_rows(image.bytes, image.width, image.height, pixels, "fuzz");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::uint8_t> kFiles[] = {whole_file(true), whole_file(false)};
  if (size == 0) return 0;
  const std::uint8_t choice = data[0] % 3;
  std::vector<std::uint8_t> file = choice < 2 ? kFiles[choice] : std::vector<std::uint8_t>(data + 1, data + size);
  if (choice < 2)
    for (std::size_t i = 1; i + 2 < size; i += 3)
      file[(data[i] | std::size_t(data[i + 1]) << 8U) % file.size()] = data[i + 2];
  // Of its exact size: a sanitizer sees what is read behind it.
  const auto exact = std::make_unique<std::uint8_t[]>(file.size());
  std::copy(file.begin(), file.end(), exact.get());
  std::vector<std::uint8_t>().swap(file);
  const std::size_t bytes = choice < 2 ? kFiles[choice].size() : size - 1;
  try {
    const BetonView view({exact.get(), bytes}, "fuzz", {{.field = "mine", .bytes = 3, .alignment = 1}});
    for (std::int64_t i = 0; i < view.regions(); ++i) (void)view.region(i);
    for (std::int64_t row = 0; row < std::min<std::int64_t>(view.size(), 50); ++row) {
      for (std::size_t f = 0; f < view.fields().size(); ++f) try {
          read_value(view, row, f);
        } catch (const DatasetError&) {  // what it should do
        }
      (void)view.page(row);
    }
  } catch (const DatasetError&) {  // what it should do
  }
  return 0;
}
