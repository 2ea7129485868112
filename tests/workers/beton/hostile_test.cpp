// Damaged counts, sizes and places in FFCV's own files: a DatasetError or a value inside the file, and no memory for what
// a number claims.
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/internal/workers/beton/format/beton_view.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/allocations.h"
#include "tests/workers/beton/beton_vectors.h"

using namespace shoal;
using namespace shoal::test;
using namespace shoal::detail;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::int64_t kStep = 64 << 10;  // the most that one step allocates: an error's texts, a few fields

/// What this thread allocates in `work`, which may end in a DatasetError and in nothing else.
std::int64_t allocated_in(const auto& work) {
  const std::int64_t before = allocated_bytes;
  try {
    work();
  } catch (const DatasetError&) {  // what it should do
  }
  return allocated_bytes - before;
}

bool lies_in(std::span<const std::uint8_t> bytes, const Bytes& file) {
  return bytes.empty() || (bytes.data() >= file.data() && bytes.data() + bytes.size() <= file.data() + file.size());
}

/// Up to the memory for pixels, which a loader makes once the size is checked.
bool value_lies_in(const BetonView& view, const Bytes& file, std::int64_t row, std::size_t f) {
  switch (view.fields()[f].type) {
    case BetonType::integer:
      (void)view.integer(row, f);
      return true;
    case BetonType::real:
      (void)view.real(row, f);
      return true;
    case BetonType::bytes:
      return lies_in(view.bytes(row, f), file);
    case BetonType::json: {
      const auto text = view.json(row, f);
      return lies_in({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, file);
    }
    case BetonType::ndarray:
    case BetonType::tensor:
      return lies_in(view.array(row, f), file);
    case BetonType::custom:
      return lies_in(view.custom(row, f), file);
    case BetonType::rgb_image: {
      const BetonImage image = view.image(row, f);
      if (image.mode == BetonImageMode::jpg) check_jpeg_size(image.bytes, image.width, image.height, "it");
      return lies_in(image.bytes, file);
    }
  }
  return false;
}

struct Read {
  std::int64_t opening = 0;  // bytes; a field has 1 KiB of the file, and needs less
  std::int64_t most = 0;     // bytes of one value
  bool is_inside = true;
  bool is_open = false;
};

Read read_all(const Bytes& file) {
  Read read;
  const auto step = [&](const auto& work) { read.most = std::max(read.most, allocated_in(work)); };
  std::optional<BetonView> view;
  read.opening = allocated_in([&] { view.emplace(file, "it", std::vector<BetonCustomCell>()); });
  if (!view) return read;
  read.is_open = true;
  for (std::int64_t row = 0; row < std::min<std::int64_t>(view->size(), 30); ++row) {
    for (std::size_t f = 0; f < std::min<std::size_t>(view->fields().size(), 10); ++f)
      step([&] { read.is_inside = value_lies_in(*view, file, row, f) && read.is_inside; });
    step([&] { (void)view->page(row); });
  }
  return read;
}

/// Where its numbers are: of the header, the first of the fields' arguments, the records and the table.
std::vector<std::size_t> numbers_of(const Bytes& file) {
  const BetonHeader header = load_header(file.data());
  std::vector<std::size_t> places = {0, 2, 4, 8, 16};
  const std::size_t records = kBetonHeaderBytes + kBetonDescriptorBytes * header.fields;
  for (std::size_t field = kBetonHeaderBytes; field < records; field += kBetonDescriptorBytes) {
    places.push_back(field);
    for (std::size_t i = 0; i < 3; ++i) places.push_back(field + 1 + kBetonNameBytes + 8 * i);  // the shape
    places.push_back(field + 1 + kBetonNameBytes + kBetonShapeBytes);                           // the type's length
    places.push_back(field + 1 + kBetonNameBytes + kBetonShapeBytes + 8 + 6);                   // its text
  }
  for (std::size_t at = records; at < std::min<std::size_t>(records + 256, header.allocations); ++at)
    places.push_back(at);
  for (std::size_t at = header.allocations; at < std::min(header.allocations + 256, file.size()); at += 8)
    places.push_back(at);
  return places;
}

}  // namespace

TEST_CASE("beton hostile: no damaged number makes the reader leave the file or allocate what it claims") {
  const std::string name = GENERATE("all", "jpeg", "pages", "scalar", "zero");
  CAPTURE(name);
  Bytes file = beton_vector(name);
  const Read whole = read_all(file);
  REQUIRE(whole.is_open);
  CHECK(whole.opening > 0);  // it is counted
  CHECK(whole.opening < kStep);
  CHECK(whole.most < kStep);
  const std::uint64_t bytes = file.size();
  std::int64_t refused = 0;
  for (const std::size_t place : numbers_of(file))
    for (const std::size_t width : {1U, 2U, 4U, 8U})
      for (const std::uint64_t value : {std::uint64_t(0), std::uint64_t(1), ~std::uint64_t(0), ~std::uint64_t(0) >> 1U,
                                        std::uint64_t(1) << 31U, std::uint64_t(1) << 40U, bytes, bytes + 1}) {
        if (place + width > file.size()) continue;
        std::uint8_t kept[8], damaged[8];
        store64(damaged, value);
        std::copy_n(file.data() + place, width, kept);
        std::copy_n(damaged, width, file.data() + place);
        const Read read = read_all(file);
        std::copy_n(kept, width, file.data() + place);
        refused += read.is_open ? 0 : 1;
        const std::int64_t most_opening = kStep + std::int64_t(bytes);
        if (read.opening < most_opening && read.most < kStep && read.is_inside) continue;
        CAPTURE(place, width, value);
        CHECK(read.opening < most_opening);
        CHECK(read.most < kStep);
        CHECK(read.is_inside);
      }
  CHECK(refused > 50);  // of the header's alone
}

TEST_CASE("beton hostile: a JPEG and its record that agree on a size beyond the limit get no memory for it") {
  Bytes jpeg = encode_jpeg_rows(Bytes(8 * 8 * 3, 99), 8, 8, 50);
  const std::uint8_t baseline[] = {0xff, 0xc0};
  const auto frame = std::ranges::search(jpeg, baseline).begin();
  REQUIRE(frame != jpeg.end());
  constexpr std::uint8_t kSide[] = {0xff, 0x00};  // 65280, as the JPEG has it
  std::ranges::copy(kSide, frame + 5);
  std::ranges::copy(kSide, frame + 7);
  REQUIRE(jpeg_header(jpeg, "it").width == 65280);
  const std::int64_t before = allocated_bytes;
  CHECK_THROWS_AS(check_jpeg_size(jpeg, 65280, 65280, "it"), DatasetError);
  const JpegRowSink nobody{nullptr, [](void*, std::size_t, const std::uint8_t*) {}};
  CHECK_THROWS_AS(decode_jpeg_part(jpeg, 65280, 65280, 1, {0, 0, 65280, 65280}, nobody, "it"), DatasetError);
  CHECK(allocated_bytes - before < kStep);
}
