// BetonFile: files by FFCV's writer, its traps, and hostile ones.
#include <fmt/format.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/ipc/queue.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "tests/support/catch.h"
#include "tests/workers/beton/beton_vectors.h"

using namespace shoal;
using namespace shoal::test;
using shoal::detail::store16;
using shoal::detail::store32;
using shoal::detail::store64;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes copied(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

BetonField field_of(const std::string& name, BetonType type) {
  BetonField field{.name = name, .type = type};
  shoal::detail::set_cell(field);
  return field;
}

BetonField array_field(const std::string& name, const std::string& code, std::vector<std::int64_t> shape) {
  BetonField field{
      .name = name, .type = BetonType::ndarray, .shape = std::move(shape), .dtype = shoal::detail::dtype_of_code(code)};
  shoal::detail::set_cell(field);
  return field;
}

struct HandMade {
  Bytes bytes;
  std::size_t meta = 0, data = 0, table = 0;  // the first record, its end, the allocation table
};

/// A file of these fields: records of zeros, then `data`, then the regions (sample, place in data, bytes).
HandMade made_of(std::vector<BetonField> fields, std::int64_t samples, const Bytes& data,
                 const std::vector<BetonRegion>& regions) {
  HandMade file;
  const std::size_t record = shoal::detail::lay_out_record(fields);
  file.meta = shoal::detail::kBetonHeaderBytes + shoal::detail::kBetonDescriptorBytes * fields.size();
  file.data = file.meta + record * std::size_t(samples);
  file.table = file.data + data.size();
  file.bytes.resize(file.table + 24 * regions.size());
  shoal::detail::store_header(file.bytes.data(),
                              {2, std::uint16_t(fields.size()), 1U << 21U, std::uint64_t(samples), file.table});
  for (std::size_t i = 0; i < fields.size(); ++i)
    shoal::detail::store_descriptor(
        file.bytes.data() + shoal::detail::kBetonHeaderBytes + i * shoal::detail::kBetonDescriptorBytes, fields[i]);
  std::ranges::copy(data, file.bytes.begin() + std::ptrdiff_t(file.data));
  for (std::size_t i = 0; i < regions.size(); ++i) {
    std::uint8_t* entry = file.bytes.data() + file.table + 24 * i;
    store64(entry, regions[i].sample);
    store64(entry + 8, file.data + regions[i].place);
    store64(entry + 16, regions[i].bytes);
  }
  return file;
}

BetonFile open(const TemporaryFolder& folder, const Bytes& bytes) {
  return BetonFile(write_beton(folder, "it", bytes));
}

/// What the DatasetError says that it throws.
std::string refusal(const auto& read) {
  try {
    read();
  } catch (const DatasetError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("beton file: every field type of a file by FFCV's writer") {
  const TemporaryFolder folder;
  const BetonFile file(write_beton(folder, "all", beton_vector("all")));
  REQUIRE(file.size() == 5);
  std::vector<std::string> names;
  for (const BetonField& field : file.fields()) names.push_back(field.name);
  CHECK(names == std::vector<std::string>{"image", "label", "score", "blob", "vec", "a_very_long_fiel"});
  CHECK(file.field("a_very_long_field_name") == 5);  // the file has 16 characters of it
  CHECK(file.fields()[4].shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.fields()[4].dtype.code == "<f4");
  CHECK(file.regions() == 20);
  for (std::int64_t row = 0; row < file.size(); ++row) {
    CAPTURE(row);
    const BetonImage image = file.image(row, 0);
    CHECK(image.mode == BetonImageMode::raw);
    CHECK(image.width == 5);
    CHECK(image.height == 4 + row);
    Bytes pixels(std::size_t(image.width * image.height * 3));
    for (std::size_t j = 0; j < pixels.size(); ++j) pixels[j] = std::uint8_t((7 * j + 13 * std::size_t(row)) % 251);
    CHECK(copied(image.bytes) == pixels);
    CHECK(file.integer(row, 1) == 11 * row - 3);
    CHECK(file.real(row, 2) == double(row) / 2);
    CHECK(copied(file.bytes(row, 3)) == Bytes(std::size_t(3 * row), std::uint8_t(65 + row)));
    std::vector<float> elements(6);
    REQUIRE(file.array(row, 4).size() == 24);
    std::memcpy(elements.data(), file.array(row, 4).data(), 24);
    std::vector<float> expected(6);
    std::iota(expected.begin(), expected.end(), float(row));
    CHECK(elements == expected);
    CHECK(file.json(row, 5) == "{\"k\": " + std::to_string(row) + ", \"s\": \"\\u00e9\\\"x\"}");
    CHECK(file.page(row) == 1);
  }
}

TEST_CASE("beton file: numbers alone have no pages and no table") {
  const TemporaryFolder folder;
  const BetonFile file(write_beton(folder, "scalar", beton_vector("scalar")));
  REQUIRE(file.size() == 3);
  CHECK(file.file_bytes() == 2154);
  CHECK(file.regions() == 0);
  for (std::int64_t row = 0; row < 3; ++row) {
    CHECK(file.integer(row, 0) == row);
    CHECK(file.real(row, 1) == double(row) / 4);
    CHECK(file.page(row) == std::nullopt);
  }
}

TEST_CASE("beton file: samples on several pages, with what an abandoned attempt left") {
  const TemporaryFolder folder;
  const BetonFile file(write_beton(folder, "pages", beton_vector("pages")));
  const std::size_t page = 1U << 21U;
  CHECK(file.page_bytes() == page);
  const std::vector<std::pair<Bytes, Bytes>> expected = {{Bytes(1000, 1), Bytes(page - 3000, 2)},
                                                         {Bytes(500, 3), Bytes(2000, 4)},
                                                         {Bytes(page / 2, 5), Bytes(page / 2, 6)}};
  for (std::int64_t row = 0; row < 3; ++row) {
    CHECK(copied(file.bytes(row, 0)) == expected[std::size_t(row)].first);
    CHECK(copied(file.bytes(row, 1)) == expected[std::size_t(row)].second);
    CHECK(file.page(row) == std::uint64_t(row + 1));
  }
}

TEST_CASE("beton file: values of no bytes share their place with others, and are empty") {
  const TemporaryFolder folder;
  const BetonFile file(write_beton(folder, "zero", beton_vector("zero")));
  CHECK(file.bytes(0, 0).empty());
  CHECK(file.bytes(0, 1).empty());
  CHECK(copied(file.bytes(1, 0)) == Bytes(4, 9));
  CHECK(file.bytes(1, 1).empty());
  CHECK(copied(file.bytes(2, 0)) == Bytes(2, 8));
  CHECK(copied(file.bytes(2, 1)) == Bytes(1, 7));
  CHECK(file.page(0) == std::nullopt);
}

TEST_CASE("beton file: a JPEG's length is that of the record with bytes, in a table in any order") {
  Bytes pixels(16 * 24 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::uint8_t(i / 8);
  const Bytes jpeg = shoal::detail::encode_jpeg_rows(pixels, 24, 16, 90);
  Bytes data = jpeg;
  data.insert(data.end(), jpeg.begin(), jpeg.end());
  const auto length = std::uint64_t(jpeg.size());
  const bool sorted = GENERATE(true, false);
  std::vector<BetonRegion> regions = {{0, 0, 0}, {0, 0, length}, {1, length, length}};
  if (!sorted) std::ranges::reverse(regions);
  HandMade made = made_of({field_of("image", BetonType::rgb_image)}, 2, data, regions);
  for (std::size_t row = 0; row < 2; ++row) {
    std::uint8_t* cell = made.bytes.data() + made.meta + 13 * row;
    store16(cell + 1, 24);
    store16(cell + 3, 16);
    store64(cell + 5, made.data + row * length);
  }
  const TemporaryFolder folder;
  const BetonFile file = open(folder, made.bytes);
  for (std::int64_t row = 0; row < 2; ++row) {
    const BetonImage image = file.image(row, 0);
    CHECK(image.mode == BetonImageMode::jpg);
    CHECK(copied(image.bytes) == jpeg);
    Bytes decoded(pixels.size());
    shoal::detail::decode_jpeg_rows(image.bytes, image.width, image.height, decoded, "it");
    int furthest = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i)
      furthest = std::max(furthest, std::abs(int(pixels[i]) - int(decoded[i])));
    CHECK(furthest < 40);
  }
  // Its record says another size: nothing is decoded into memory for that.
  Bytes large(3 * 25 * 16);
  CHECK_THROWS_WITH(shoal::detail::decode_jpeg_rows(jpeg, 25, 16, large, "it"),
                    ContainsSubstring("24 x 16 pixels, 25 x 16 by its record"));
  CHECK_THROWS_WITH(shoal::detail::decode_jpeg_rows(std::span(jpeg).first(jpeg.size() / 2), 24, 16, pixels, "it"),
                    ContainsSubstring("can't be decoded"));
}

TEST_CASE("beton file: arrays of no dimensions and of none in the last one are told apart by their region") {
  const TemporaryFolder folder;
  struct Case {
    std::vector<std::int64_t> written;
    std::uint64_t bytes;
    std::vector<std::int64_t> read;
  };
  for (const Case& each :
       {Case{{}, 4, {}}, Case{{}, 0, {0}}, Case{{3}, 12, {3}}, Case{{3}, 0, {3, 0}}, Case{{0, 3}, 0, {0, 3}}}) {
    HandMade made = made_of({array_field("vec", "<f4", each.written)}, 1, Bytes(64, 1), {{0, 0, each.bytes}});
    store64(made.bytes.data() + made.meta, made.data);
    const BetonFile file = open(folder, made.bytes);
    CHECK(file.fields()[0].shape == each.read);
    CHECK(file.array(0, 0).size() == each.bytes);
  }
}

TEST_CASE("beton file: a custom field needs its cell described") {
  const TemporaryFolder folder;
  BetonField custom{.name = "mine", .type = BetonType::custom, .cell_bytes = 5, .cell_alignment = 4};
  HandMade made = made_of({custom, field_of("label", BetonType::integer)}, 2, {}, {});
  for (std::size_t row = 0; row < 2; ++row) {
    made.bytes[made.meta + 16 * row] = std::uint8_t(7 + row);
    store64(made.bytes.data() + made.meta + 16 * row + 8, 40 + row);
  }
  const std::string path = write_beton(folder, "custom", made.bytes);
  CHECK_THROWS_WITH(BetonFile(path), ContainsSubstring("field \"mine\": a custom field (type 255)"));
  const BetonFile file(path, {{.field = "mine", .bytes = 5, .alignment = 4}});
  for (std::int64_t row = 0; row < 2; ++row) {
    CHECK(copied(file.custom(row, 0)) == Bytes{std::uint8_t(7 + row), 0, 0, 0, 0});
    CHECK(file.integer(row, 1) == 40 + row);
  }
  CHECK_THROWS_AS(BetonFile(path, {{.field = "mine", .bytes = 0}}), std::invalid_argument);
}

TEST_CASE("beton file: a custom field's cell is described by its whole name, of which the file has the beginning") {
  const TemporaryFolder folder;
  const BetonField custom{
      .name = "sixteen_letters_and_more", .type = BetonType::custom, .cell_bytes = 3, .cell_alignment = 1};
  const std::string path = write_beton(folder, "custom", made_of({custom}, 1, {}, {}).bytes);
  for (const char* name : {"sixteen_letters_and_more", "sixteen_letters_"})
    CHECK(BetonFile(path, {{.field = name, .bytes = 3}}).custom(0, 0).size() == 3);
  CHECK_THROWS_AS(BetonFile(path, {{.field = "sixteen_letters", .bytes = 3}}), DatasetError);
}

TEST_CASE("beton file: what is asked for that is not there is the caller's mistake, and says what there is") {
  const TemporaryFolder folder;
  const BetonFile file(write_beton(folder, "all", beton_vector("all")));
  CHECK_THROWS_WITH(file.field("lable"), ContainsSubstring("image, label, score"));
  CHECK_THROWS_AS(file.integer(5, 1), std::out_of_range);
  CHECK_THROWS_AS(file.integer(-1, 1), std::out_of_range);
  CHECK_THROWS_AS(file.integer(0, 6), std::out_of_range);
  CHECK_THROWS_WITH(file.integer(0, 0), ContainsSubstring("field \"image\" is of type rgb_image, not int"));
}

TEST_CASE("beton file: hostile files are refused with file, offset and field") {
  const TemporaryFolder folder;
  const Bytes good = beton_vector("all");
  const auto refused = [&](const auto& change, const std::string& what) {
    Bytes bytes = good;
    change(bytes);
    CHECK_THAT(refusal([&] { open(folder, bytes); }), ContainsSubstring("it.beton: ") && ContainsSubstring(what));
  };
  refused([](Bytes& bytes) { bytes.resize(23); }, "no .beton file: 23 bytes");
  refused([](Bytes& bytes) { bytes.clear(); }, "it is empty");
  refused([](Bytes& bytes) { bytes[0] = 3; }, "offset 0: format version 3; this reads 2");
  refused([](Bytes& bytes) { store16(bytes.data() + 2, 0); }, "offset 2: the file has no fields");
  refused([](Bytes& bytes) { store16(bytes.data() + 2, 65535); }, "offset 16: the allocation table begins at");
  refused([](Bytes& bytes) { store32(bytes.data() + 4, 3U << 20U); }, "offset 4: pages of 3145728 bytes");
  refused([](Bytes& bytes) { store32(bytes.data() + 4, 0); }, "offset 4: pages of 0 bytes");
  refused([](Bytes& bytes) { store64(bytes.data() + 8, 1ULL << 60U); },
          "offset 8: 1152921504606846976 samples of 72 bytes");
  refused([](Bytes& bytes) { store64(bytes.data() + 8, ~0ULL); }, "offset 8: 18446744073709551615 samples");
  refused([](Bytes& bytes) { store64(bytes.data() + 16, 0); }, "offset 16: the file was not finished");
  refused([](Bytes& bytes) { store64(bytes.data() + 16, ~0ULL); }, "offset 16: the allocation table begins at");
  refused([](Bytes& bytes) { store64(bytes.data() + 16, 100); }, "offset 16: the allocation table begins at 100");
  refused([](Bytes& bytes) { bytes.pop_back(); }, "not a multiple of 24");
  refused([](Bytes& bytes) { bytes[24] = 7; }, "offset 24, field \"image\": its type is 7");
  const std::size_t arguments = 24 + 4 * 1041 + 17;  // of vec
  refused([&](Bytes& bytes) { store64(bytes.data() + arguments, ~0ULL); }, "field \"vec\": the array's shape");
  refused([&](Bytes& bytes) { store64(bytes.data() + arguments + 8 * 31, 1U << 31U); },
          "offset 4188, field \"vec\": the array's shape");
  refused([&](Bytes& bytes) { store64(bytes.data() + arguments + 256, 761); },
          "field \"vec\": the text of the array's type has 761");
  refused([&](Bytes& bytes) { bytes[arguments + 264 + 7] = 'q'; }, "field \"vec\": the array's type is");
  refused([&](Bytes& bytes) { bytes[arguments + 264 + 1] = '('; }, "field \"vec\": the array's type is");
}

TEST_CASE("beton file: a file of another kind and one that is cut are named as such, with sizes found and expected") {
  const TemporaryFolder folder;
  Bytes picture(1000, 7);
  std::ranges::copy(std::string("\x89PNG\r\n\x1a\n"), picture.begin());
  CHECK_THAT(refusal([&] { open(folder, picture); }),
             EndsWith("it.beton: offset 0: format version 20617; this reads 2: it is no .beton file, or one of another "
                      "version of the format. It has 1000 bytes and begins with 89 50 4e 47 0d 0a 1a 0a"));
  const Bytes whole = beton_vector("jpeg");
  const std::uint64_t table = shoal::detail::load64(whole.data() + 16);
  const auto cut_to = [&](std::size_t size) { return Bytes(whole.begin(), whole.begin() + std::ptrdiff_t(size)); };
  // Within the data.
  CHECK_THAT(
      refusal([&] { open(folder, cut_to(table - 100)); }),
      EndsWith(fmt::format("the allocation table begins at {}, and the file has {} bytes: it is cut short by 100 "
                           "at least",
                           table, table - 100)));
  // Within the table, whose length nothing says: by its records, and between two of them.
  CHECK_THAT(refusal([&] { open(folder, cut_to(whole.size() - 25)); }),
             ContainsSubstring(fmt::format("to the end of the file's {} bytes", whole.size() - 25)) &&
                 ContainsSubstring("is cut short"));
  const BetonFile file = open(folder, cut_to(table + 24));
  const auto last = file.size() - 1;
  const std::size_t image = file.field("image");
  CHECK(file.image(0, image).bytes.size() > 100);
  const auto regioned = std::ranges::count_if(file.fields(), &BetonField::has_region);
  CHECK_THAT(refusal([&] { (void)file.image(last, image); }),
             ContainsSubstring(fmt::format("the table has 1 of {} regions, to the end of the file's {} bytes",
                                           file.size() * regioned, table + 24)));
}

TEST_CASE("beton file: a hostile record is refused where it is read") {
  const TemporaryFolder folder;
  const Bytes good = beton_vector("all");
  const std::size_t meta = 24 + 6 * 1041;
  const auto refused = [&](std::size_t offset, std::uint64_t value, const auto& read, const std::string& what) {
    Bytes bytes = good;
    store64(bytes.data() + meta + 72 + offset, value);
    const BetonFile file = open(folder, bytes);
    CHECK_THAT(refusal([&] { read(file); }), ContainsSubstring(what));
  };
  const auto image = [](const BetonFile& file) { return file.image(1, 0); };
  const auto blob = [](const BetonFile& file) { return file.bytes(1, 3); };
  const auto vec = [](const BetonFile& file) { return file.array(1, 4); };
  refused(5, ~0ULL, image,
          fmt::format("offset {}, sample 1, field \"image\": 75 bytes at 18446744073709551615", meta + 72));
  refused(5, 4194304 - 74, image, "do not lie in the file's data");
  refused(5, meta, image, "do not lie in the file's data");
  refused(0, 2, image, "the picture's mode is 2");
  refused(0, 0, image, "no region at 0, where this JPEG begins");
  refused(32, ~0ULL - 1, blob, "sample 1, field \"blob\": 3 bytes at 18446744073709551614");
  refused(40, ~0ULL, blob, "18446744073709551615 bytes at");
  refused(48, 2097152 - 8, vec, "24 bytes at 2097144 cross the end of a page of 2097152");
  Bytes bytes = good;
  const std::uint64_t json = shoal::detail::load64(bytes.data() + meta + 56);
  bytes[json + 26] = 'x';
  CHECK_THROWS_WITH(open(folder, bytes).json(0, 5), ContainsSubstring("does not end in a zero byte"));
}

TEST_CASE("beton file: crosses as its path, and a file that changed by then is refused") {
  const TemporaryFolder folder;
  const std::string path = write_beton(folder, "all", beton_vector("all"));
  Queue<BetonFile> queue;
  queue.put(BetonFile(path));
  CHECK(queue.get().integer(2, 1) == 19);
  queue.put(BetonFile(path));
  write_beton(folder, "all", beton_vector("scalar"));
  CHECK_THROWS_WITH(queue.get(), ContainsSubstring("was it replaced"));
  // Of the same size, with other contents.
  queue.put(BetonFile(path));
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::milliseconds(1));
  CHECK_THROWS_WITH(queue.get(), ContainsSubstring("was changed since it was opened"));
  CHECK_THROWS_WITH(BetonFile(folder.file("none.beton")), ContainsSubstring("can't be opened"));
  CHECK_THROWS_WITH(BetonFile(folder.path()), ContainsSubstring("not a regular file"));
}
