// BetonWriter: what it writes is what FFCV's writer writes, whoever encodes, and a failure leaves no file.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/internal/workers/beton/write/area_resize.h>
#include <shoal/internal/workers/beton/write/file_writer.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/images/decode.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/workers/beton/beton_vectors.h"
#include "tests/workers/faulty_dataset.h"

using namespace shoal;
using namespace shoal::test;

namespace {

struct Row {
  at::Tensor image;
  std::int64_t label;
  double score;
  std::string blob;
  at::Tensor vec;
  BetonJson a_very_long_field_name;
};

/// The samples of the vector `all`.
struct AllFields {
  std::int64_t count = 5;
  std::int64_t first_blob = 0;
  std::int64_t size() const { return count; }
  Row get(std::int64_t i) const {
    const auto pixels =
        at::arange((4 + i) * 5 * 3, at::kLong).mul(7).add(13 * i).remainder(251).to(at::kByte).view({4 + i, 5, 3});
    return {pixels.permute({2, 0, 1}),
            11 * i - 3,
            double(i) / 2,
            std::string(std::size_t(first_blob + 3 * i), char(65 + i)),
            at::arange(6, at::kFloat).add(i).view({2, 3}),
            {"{\"k\": " + std::to_string(i) + ", \"s\": \"\\u00e9\\\"x\"}"}};
  }
};

struct Scalars {
  std::int64_t size() const { return 3; }
  struct Row {
    int index;
    float value;
  };
  Row get(std::int64_t i) const { return {int(i), float(i) / 4}; }
};

struct TwoTexts {
  std::vector<std::pair<std::string, std::string>> rows;
  struct Row {
    std::string a, b;
  };
  std::size_t size() const { return rows.size(); }
  Row get(std::int64_t i) const { return {rows[std::size_t(i)].first, rows[std::size_t(i)].second}; }
};

struct Pictures {
  std::int64_t height = 48, width = 64;
  std::int64_t size() const { return 40; }
  at::Tensor get(std::int64_t i) const { return smooth_image(height, width, int(i)); }
};

struct EncodedPictures {
  std::vector<EncodedImage> files;
  std::size_t size() const { return files.size(); }
  EncodedImage get(std::int64_t i) const { return files[std::size_t(i)]; }
};

constexpr std::uint64_t kSmallPage = 2U << 20U;

std::vector<std::uint8_t> written(const std::string& path, auto dataset, BetonWriterOptions options = {}) {
  options.page_bytes = kSmallPage;
  BetonWriter(path, options).write(dataset);
  return bytes_of_file(path);
}

}  // namespace

TEST_CASE("beton writer: the bytes of FFCV's writer, where its samples have no empty values") {
  const TemporaryFolder folder;
  CHECK(written(folder.file("scalar"), Scalars{}) == beton_vector("scalar"));
  const std::size_t page = kSmallPage;
  const TwoTexts texts{{{std::string(1000, 1), std::string(page - 3000, 2)},
                        {std::string(500, 3), std::string(2000, 4)},
                        {std::string(page / 2, 5), std::string(page / 2, 6)}}};
  CHECK(written(folder.file("pages"), texts) == beton_vector("pages"));
}

TEST_CASE("beton writer: every type of member, by its name, is what BetonFile reads") {
  const TemporaryFolder folder;
  written(folder.file("it"), AllFields{});
  const BetonFile file(folder.file("it")), by_ffcv(write_beton(folder, "all", beton_vector("all")));
  REQUIRE(file.size() == 5);
  REQUIRE(file.fields().size() == 6);
  for (std::size_t f = 0; f < 6; ++f) {
    CHECK(file.fields()[f].name == by_ffcv.fields()[f].name);
    CHECK(file.fields()[f].cell_offset == by_ffcv.fields()[f].cell_offset);
  }
  CHECK(file.fields()[4].type == BetonType::tensor);
  const auto equal = [](std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
    return std::ranges::equal(a, b);
  };
  for (std::int64_t row = 0; row < 5; ++row) {
    CHECK(equal(file.image(row, 0).bytes, by_ffcv.image(row, 0).bytes));
    CHECK(file.integer(row, 1) == by_ffcv.integer(row, 1));
    CHECK(file.real(row, 2) == by_ffcv.real(row, 2));
    CHECK(equal(file.bytes(row, 3), by_ffcv.bytes(row, 3)));
    CHECK(equal(file.array(row, 4), by_ffcv.array(row, 4)));
    CHECK(file.json(row, 5) == by_ffcv.json(row, 5));
  }
  // FFCV confuses two regions at one place: here each has its own, also an empty one.
  for (std::int64_t i = 1; i < file.regions(); ++i) CHECK(file.region(i).place > file.region(i - 1).place);
}

TEST_CASE("beton writer: the same bytes with 0, 1, 2 and 3 workers, chunks of any size and every draw") {
  const TemporaryFolder folder;
  BetonWriterOptions options{.images = {.write_mode = BetonWriteMode::proportion}, .seed = 7};
  const auto alone = written(folder.file("alone"), Pictures{}, options);
  std::int64_t jpegs = 0;
  const BetonFile file(folder.file("alone"));
  for (std::int64_t row = 0; row < file.size(); ++row) jpegs += file.image(row, 0).mode == BetonImageMode::jpg ? 1 : 0;
  CHECK(jpegs > 8);
  CHECK(jpegs < 32);
  for (int workers = 1; workers <= 3; ++workers) {
    options.num_workers = workers;
    options.chunk_size = 2 + 3 * workers;
    CHECK(written(folder.file("by_workers"), Pictures{}, options) == alone);
  }
}

TEST_CASE("beton writer: a sample that throws ends it with its index, and the place keeps what it had") {
  const TemporaryFolder folder;
  const int workers = GENERATE(0, 2);
  const std::string path = folder.file("it");
  const auto before = written(path, Scalars{});
  try {
    BetonWriter(path, {.num_workers = workers, .chunk_size = 7}).write(Faulty{.throws_at = 61});
    FAIL("it was written");
  } catch (const BetonWriteFailed& error) {
    CHECK(error.index() == 61);
    CHECK_THAT(error.what(),
               ContainsSubstring("sample 61 can't be written") && ContainsSubstring("this one is no good"));
  }
  CHECK(bytes_of_file(path) == before);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("beton writer: a worker that dies ends it with the index at which it was") {
  const TemporaryFolder folder;
  try {
    BetonWriter(folder.file("it"), {.num_workers = 2, .chunk_size = 7}).write(Faulty{.dies_at = 38});
    FAIL("it was written");
  } catch (const BetonWriteFailed& error) {
    CHECK(error.index() == 38);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("beton writer: pictures raw, as JPEGs, by their size, and made smaller") {
  const TemporaryFolder folder;
  const auto modes = [&](const BetonImageOptions& images) {
    BetonWriter(folder.file("it"), {.images = images}).write(Pictures{});
    return BetonFile(folder.file("it"));
  };
  CHECK(modes({}).image(3, 0).mode == BetonImageMode::raw);
  CHECK(modes({.write_mode = BetonWriteMode::jpg}).image(3, 0).mode == BetonImageMode::jpg);
  CHECK(modes({.write_mode = BetonWriteMode::smart}).image(3, 0).mode == BetonImageMode::raw);
  CHECK(modes({.write_mode = BetonWriteMode::smart, .smart_threshold = 48 * 64 * 3}).image(3, 0).mode ==
        BetonImageMode::raw);
  CHECK(modes({.write_mode = BetonWriteMode::smart, .smart_threshold = 48 * 64 * 3 - 1}).image(3, 0).mode ==
        BetonImageMode::jpg);
  const BetonFile small = modes({.max_resolution = 20});
  CHECK(small.image(0, 0).width == 20);
  CHECK(small.image(0, 0).height == 15);
  CHECK(modes({.write_mode = BetonWriteMode::jpg, .jpeg_quality = 95}).image(0, 0).bytes.size() >
        modes({.write_mode = BetonWriteMode::jpg, .jpeg_quality = 30}).image(0, 0).bytes.size());
  CHECK_THROWS_WITH(modes({.jpeg_quality = 0}), ContainsSubstring("jpeg_quality is 0; 1 to 100"));
}

TEST_CASE("beton writer: sizes by max_resolution are FFCV's, which truncates") {
  using shoal::detail::bounded_size;
  using shoal::detail::PixelSize;
  CHECK(bounded_size(322, 161, 256) == PixelSize{255, 127});
  CHECK(bounded_size(256, 100, 256) == PixelSize{256, 100});
  CHECK(bounded_size(10, 10, 256) == PixelSize{10, 10});
  CHECK(bounded_size(2000, 1, 256) == PixelSize{256, 1});
}

TEST_CASE("beton writer: what a page does not use reads as zeros, and takes no room on the disk") {
  const TemporaryFolder folder;
  const auto room_of = [](const std::string& path) {
    struct stat status{};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return std::pair(std::uint64_t(status.st_size), std::uint64_t(status.st_blocks) * 512);
  };
  {
    const Fd hole(::open(folder.file("hole").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    REQUIRE(::ftruncate(hole.get(), 16 << 20) == 0);
  }
  if (room_of(folder.file("hole")).second > 1U << 20U) {
    WARN("this file system has no holes: what pages take was not looked at");
    return;
  }
  BetonWriter(folder.file("it")).write(TwoTexts{{{"a", "bc"}, {"def", "g"}}});
  const auto [bytes, room] = room_of(folder.file("it"));
  CHECK(bytes == (16U << 20U) + 4 * 24);  // the records' page, one of values, the allocation table
  CHECK(room < 1U << 20U);
  BetonWriter(folder.file("small"), {.page_bytes = kSmallPage}).write(TwoTexts{{{"a", "bc"}}});
  CHECK(room_of(folder.file("small")).first == 2 * kSmallPage + 2 * 24);
  const auto all = bytes_of_file(folder.file("it"));
  CHECK(std::count(all.begin() + (8 << 20) + 7, all.begin() + (16 << 20), 0) == (8 << 20) - 7);
}

TEST_CASE("beton writer: smaller pictures are averages of areas") {
  const std::vector<std::uint8_t> rows = {0, 0, 0, 90, 90, 90, 30, 60, 90};  // one row of three pixels
  const auto halved = shoal::detail::resize_by_area(rows, 3, 1, {2, 1});
  // Each covers a pixel and a half: (0 + 45) / 1.5 and (45 + c) / 1.5.
  CHECK(halved.pixels == std::vector<std::uint8_t>{30, 30, 30, 50, 70, 90});
  CHECK(shoal::detail::resize_by_area(rows, 3, 1, {1, 1}).pixels == std::vector<std::uint8_t>{40, 50, 60});
  CHECK(shoal::detail::resize_by_area(rows, 3, 1, {3, 1}).pixels == rows);
  // Both sides halved: OpenCV rounds 0.5 up there, and to even elsewhere, as in a row of two.
  const std::vector<std::uint8_t> four = {0, 0, 1, 0, 2, 1, 1, 0, 1, 1, 0, 2};
  CHECK(shoal::detail::resize_by_area(four, 2, 2, {1, 1}).pixels == std::vector<std::uint8_t>{1, 1, 1});
  const std::vector<std::uint8_t> two = {0, 0, 1, 1, 2, 2};
  CHECK(shoal::detail::resize_by_area(two, 2, 1, {1, 1}).pixels == std::vector<std::uint8_t>{0, 1, 2});
}

TEST_CASE("beton writer: a JPEG's file is stored as it is, unless it has to be decoded") {
  const TemporaryFolder folder;
  const auto jpeg = jpeg_of(smooth_image(48, 64)),
             grey = jpeg_of(smooth_image(48, 64).narrow(0, 0, 1), 95, JpegColor::grey),
             png = png_of(smooth_image(48, 64));
  const EncodedPictures pictures{{{jpeg, "a.jpg"}, {grey, "b.jpg"}, {png, "c.png"}}};
  const auto write = [&](const BetonImageOptions& images) {
    BetonWriter(folder.file("it"), {.images = images}).write(pictures);
    return BetonFile(folder.file("it"));
  };
  const BetonFile verbatim = write({.write_mode = BetonWriteMode::jpg});
  CHECK(std::ranges::equal(verbatim.image(0, 0).bytes, jpeg));
  CHECK(verbatim.image(1, 0).mode == BetonImageMode::jpg);
  CHECK(!std::ranges::equal(verbatim.image(1, 0).bytes, grey));  // readers want three colours
  CHECK(verbatim.image(2, 0).mode == BetonImageMode::jpg);
  CHECK(!std::ranges::equal(write({.write_mode = BetonWriteMode::jpg, .max_resolution = 32}).image(0, 0).bytes, jpeg));
  CHECK(!std::ranges::equal(write({.write_mode = BetonWriteMode::jpg, .verbatim = false}).image(0, 0).bytes, jpeg));
  const BetonFile raw = write({});
  const at::Tensor decoded = decode_image(png, "c.png").permute({1, 2, 0}).contiguous();
  CHECK(std::memcmp(raw.image(2, 0).bytes.data(), decoded.const_data_ptr(), decoded.nbytes()) == 0);
}

TEST_CASE("beton writer: samples without names of their own, and what cannot be a field") {
  const TemporaryFolder folder;
  struct Pairs {
    std::int64_t size() const { return 2; }
    std::pair<at::Tensor, int> get(std::int64_t i) const { return {at::full({2}, i, at::kInt), int(i)}; }
  };
  BetonWriter(folder.file("it"), {.names = {"words", "label"}}).write(Pairs{});
  const BetonFile file(folder.file("it"));
  CHECK(file.fields()[0].name == "words");
  CHECK(file.fields()[0].dtype.code == "<i4");
  CHECK(file.integer(1, 1) == 1);
  BetonWriter(folder.file("it")).write(Pairs{});
  CHECK(BetonFile(folder.file("it")).fields()[1].name == "field1");
  const auto refused = [&](BetonWriterOptions options, const std::string& what) {
    CHECK_THROWS_WITH(BetonWriter(folder.file("it"), options).write(Pairs{}), ContainsSubstring(what));
  };
  refused({.names = {"one"}}, "1 names for samples of 2 values");
  refused({.names = {"sixteen_letters_a", "sixteen_letters_b"}}, "two fields' names begin with \"sixteen_letters_\"");
  refused({.names = {"", "b"}}, "a field's name is \"\"");
  refused({.page_bytes = 3U << 20U}, "page_bytes is 3145728");
  refused({.fields = {{"lable", {}}}}, "options for the field \"lable\"");
  refused({.fields = {{"field1", {.type = BetonType::json}}}}, "cannot be stored as json");
  CHECK_THROWS_WITH(BetonWriter(folder.file("it")).write(TwoTexts{}), ContainsSubstring("a data set without samples"));
  CHECK_THROWS_WITH(BetonWriter(folder.file("it"), {.page_bytes = kSmallPage})
                        .write(TwoTexts{{{std::string(2 * kSmallPage, 'x'), ""}}}),
                    ContainsSubstring("sample 0 can't be written: it takes 4194305 bytes, a page has 2097152"));
}

TEST_CASE("beton writer: samples that differ from the first one in shape or kind are refused by field and index") {
  struct Growing {
    std::int64_t size() const { return 3; }
    at::Tensor get(std::int64_t i) const { return at::zeros({2 + i / 2}); }
  };
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(
      BetonWriter(folder.file("it")).write(Growing{}),
      ContainsSubstring(
          "sample 2 can't be written: field \"field0\": this sample's is Float [3], the first one's <f4 [2]"));
}

TEST_CASE("beton writer: conjugates and negatives that are views are written as they read") {
  struct Views {
    std::int64_t size() const { return 2; }
    std::pair<at::Tensor, at::Tensor> get(std::int64_t i) const {
      const at::Tensor conjugate =
          at::complex(at::arange(i, i + 3, at::kFloat), at::arange(i + 5, i + 8, at::kFloat)).conj();
      return {conjugate, at::imag(conjugate)};
    }
  };
  REQUIRE(Views().get(0).first.is_conj());
  REQUIRE(Views().get(0).second.is_neg());
  const TemporaryFolder folder;
  BetonWriter(folder.file("it")).write(Views{});
  const auto dataset = beton_dataset(folder.file("it"));
  for (std::int64_t i = 0; i < 2; ++i) {
    CHECK(dataset.get(i).at("field0").equal(Views().get(i).first.resolve_conj()));
    CHECK(dataset.get(i).at("field1").equal(Views().get(i).second.resolve_neg()));
  }
}

TEST_CASE("beton writer: a worker sends about 8 MiB at a time, however large a chunk's samples are") {
  struct Texts {
    std::int64_t size() const { return 40; }
    std::string get(std::int64_t i) const { return std::string(1U << 20U, char('a' + i % 26)); }
  };
  const Texts texts;
  const std::string first = texts.get(0);
  const shoal::detail::SampleEncoder encoder({"text"}, shoal::detail::values_of(first), {});
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < texts.size(); ++i) indices.push_back(i);
  std::size_t largest = 0, all = 0, messages = 0;
  shoal::detail::encode_samples(
      texts, encoder, indices, {.processes = 1, .name = "writer"}, 100,
      [&](std::span<const std::uint8_t> bytes) {
        largest = std::max(largest, bytes.size());
        all += bytes.size();
        ++messages;
      },
      [](std::int64_t) { throw; });
  CHECK(all >= 40U << 20U);
  CHECK(largest < 9U << 20U);
  CHECK(messages < 20);  // and yet several samples at a time
}
