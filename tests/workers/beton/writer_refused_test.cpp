// What a BetonWriter refuses: before it begins, or by the index of the sample at fault.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/workers/beton/beton_dataset.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/faulty_dataset.h"

using namespace shoal;
using namespace shoal::test;

namespace {

constexpr std::uint64_t kLeastPage = 2U << 20U;

/// Texts of one letter, but for one.
struct OneLong {
  std::int64_t where = 7;
  std::size_t length = kLeastPage + 1;
  std::int64_t size() const { return 10; }
  std::string get(std::int64_t i) const { return std::string(i == where ? length : 1, 'x'); }
};

struct NumberedRows {
  std::int64_t fields = 2;
  std::int64_t size() const { return 1; }
  BetonRow get(std::int64_t) const { return {std::vector<BetonRow::Value>(std::size_t(fields), std::int64_t(3))}; }
};

struct Elsewhere {
  std::int64_t size() const { return 2; }
  at::Tensor get(std::int64_t) const { return at::empty({4, 4}, at::TensorOptions(at::kMeta)); }
};

struct OneJpeg {
  std::vector<std::uint8_t> bytes;
  std::int64_t size() const { return 1; }
  EncodedImage get(std::int64_t) const { return {bytes, "large.jpg"}; }
};

int samples_read = 0;
struct Counting {
  std::int64_t size() const { return 500; }
  std::int64_t get(std::int64_t i) const {
    ++samples_read;
    return i;
  }
};

struct Number {
  std::int64_t field0;
};

bool is_empty(const TemporaryFolder& folder) { return std::filesystem::is_empty(folder.path()); }

}  // namespace

TEST_CASE("beton writer: a sample larger than a page is at fault by its index in the data set, whoever encoded it") {
  const TemporaryFolder folder;
  const int workers = GENERATE(0, 1);
  const std::vector<std::int64_t> indices = {5, 7};
  try {
    BetonWriter(folder.file("it"), {.page_bytes = kLeastPage, .num_workers = workers}).write(OneLong{}, indices);
    FAIL("it was written");
  } catch (const BetonWriteFailed& error) {
    CHECK(error.index() == 7);
    CHECK_THAT(error.what(),
               ContainsSubstring("sample 7 can't be written: it takes 2097153 bytes, a page has 2097152"));
  }
  CHECK(is_empty(folder));
}

TEST_CASE("beton writer: workers that cannot start are no sample's fault") {
  const TemporaryFolder folder;
  const std::string source = folder.file("source");
  BetonWriter(source).write(Faulty{});
  const auto dataset = beton_dataset<Number>(source);
  std::filesystem::remove(source);  // and a worker opens it anew
  CHECK_THROWS_AS(BetonWriter(folder.file("it"), {.num_workers = 1}).write(dataset), PoolStopped);
  CHECK(is_empty(folder));
}

TEST_CASE("beton writer: tensors elsewhere than on the CPU are refused by field and device") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(BetonWriter(folder.file("it")).write(Elsewhere{}),
                    ContainsSubstring("field \"field0\": this sample's tensor is on meta; give tensors on the CPU"));
  CHECK(is_empty(folder));
}

TEST_CASE("beton writer: more fields than the format can count, and none, are refused") {
  const TemporaryFolder folder;
  for (const std::int64_t fields : {0, 65536, 65537}) {
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < fields; ++i) names.push_back(fmt::format("f{}", i));
    CHECK_THROWS_WITH(BetonWriter(folder.file("it"), {.names = names}).write(NumberedRows{fields}),
                      ContainsSubstring(fmt::format("samples of {} fields; a .beton file has 1 to 65535", fields)));
  }
  CHECK(is_empty(folder));
}

TEST_CASE("beton writer: a directory in the file's place is noticed before the samples are read") {
  const TemporaryFolder folder;
  samples_read = 0;
  CHECK_THROWS_WITH(BetonWriter(folder.path()).write(Counting{}),
                    ContainsSubstring("it is a directory; name a file in it"));
  CHECK(samples_read <= 1);  // the first one tells the fields
  CHECK(is_empty(folder));
}

TEST_CASE("beton writer: a JPEG of more pixels than readers take is refused") {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> jpeg =
      shoal::detail::encode_jpeg_rows(std::vector<std::uint8_t>(std::size_t(8 * 8 * 3), 99), 8, 8, 50);
  const std::uint8_t baseline[] = {0xff, 0xc0};
  const auto frame = std::ranges::search(jpeg, baseline).begin();
  REQUIRE(frame != jpeg.end());
  constexpr std::uint8_t kSides[] = {0x40, 0x00, 0x40, 0x00};  // 16384, as the JPEG has them
  std::ranges::copy(kSides, frame + 5);
  CHECK_THROWS_WITH(
      BetonWriter(folder.file("it"), {.images = {.write_mode = BetonWriteMode::jpg}}).write(OneJpeg{jpeg}),
      ContainsSubstring("a JPEG has 16384 x 16384 pixels, and readers refuse more than 178956970"));
}
