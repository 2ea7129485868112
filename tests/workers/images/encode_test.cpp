// Pictures into files.
#include <shoal/workers/images/encode.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/datasets/image_folder.h>
#include <shoal/workers/images/decode.h>
#include <shoal/workers/pool.h>
#include <shoal/workers/transforms/transforms.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shoal::test;
using namespace shoal;

namespace {

at::Tensor random_image(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return at::randint(0, 256, {channels, height, width}, at::TensorOptions(at::kByte));
}

std::size_t files_in(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE("encode: a PNG comes back to the last bit, whatever the size, the level and the strides") {
  for (const std::int64_t width : {1, 2, 3, 17, 100}) {
    const at::Tensor image = random_image(3, 9, width);
    for (const int level : {0, 6, 9}) CHECK(decode_image(encode_png(image, level), "x").equal(image));
    CHECK(decode_image(encode_png(image.transpose(1, 2)), "x").equal(image.transpose(1, 2)));
    const at::Tensor grey = random_image(1, 9, width);
    CHECK(decode_mask(encode_png(grey), "x").equal(grey[0]));
    CHECK(decode_image(encode_png(grey), "x").equal(grey.expand({3, 9, width})));
  }
  const at::Tensor smooth = smooth_image(200, 200);
  CHECK(encode_png(smooth, 9).size() < encode_png(smooth, 0).size());
}

TEST_CASE("encode: a JPEG is libjpeg's of this quality, byte for byte, 75 by default") {
  const at::Tensor image = smooth_image(40, 61);
  for (const int quality : {1, 30, 75, 95, 100}) CHECK(encode_jpeg(image, quality) == jpeg_of(image, quality));
  CHECK(encode_jpeg(image) == jpeg_of(image, 75));
  const at::Tensor noise = random_image(3, 300, 400);  // several times what is made room for at first
  const auto large = encode_jpeg(noise, 100);
  CHECK(large.size() > 200'000);
  CHECK(large == jpeg_of(noise, 100));
  CHECK(encode_jpeg(image.narrow(0, 1, 1), 90) == jpeg_of(image.narrow(0, 1, 1), 90, JpegColor::grey));
  const at::Tensor decoded = decode_image(encode_jpeg(image, 95), "x");
  CHECK((decoded.to(at::kInt) - image.to(at::kInt)).abs().max().item<int>() <= 6);
}

TEST_CASE("encode: what is no such picture is refused with what it is, and so are quality and level") {
  CHECK_THROWS_WITH(encode_jpeg(random_image(4, 5, 5)),
                    ContainsSubstring("encode_jpeg") && ContainsSubstring("[4, 5, 5]"));
  CHECK_THROWS_WITH(encode_png(random_image(3, 5, 5).to(at::kFloat)), ContainsSubstring("Float"));
  CHECK_THROWS_WITH(encode_png(random_image(3, 0, 5)), ContainsSubstring("[3, 0, 5]"));
  CHECK_THROWS_WITH(encode_jpeg(random_image(1, 1, 65536)), ContainsSubstring("1 to 65"));
  CHECK_THROWS_WITH(encode_jpeg(at::Tensor()), ContainsSubstring("undefined"));
  CHECK_THROWS_WITH(encode_jpeg(random_image(3, 5, 5), 0), ContainsSubstring("quality is 0"));
  CHECK_THROWS_WITH(encode_png(random_image(3, 5, 5), 10), ContainsSubstring("compression_level is 10"));
}

TEST_CASE("write: the file is there as a whole, in place of the one before, and nothing beside it") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.file("1.png");
  const at::Tensor first = random_image(3, 30, 30), second = random_image(3, 8, 9);
  const mode_t before = ::umask(027);
  write_png(first, path);
  ::umask(before);
  CHECK(read_image(path).equal(first));
  struct stat status{};
  CHECK(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0640);  // as any file that is made
  write_png(second, path);
  CHECK(read_image(path).equal(second));
  write_jpeg(second, folder.file("2.jpg"), 90);
  CHECK(files_in(folder.path()) == 2);
  CHECK_THROWS_WITH(write_png(first, folder.file("none/1.png")), ContainsSubstring("none/1.png: can't be written"));
  CHECK_THROWS_AS(write_png(first, folder.path()), DatasetError);  // a folder's name: its place can't be taken
  CHECK_THROWS_AS(write_jpeg(first, folder.file("3.jpg"), 101), std::invalid_argument);
  CHECK(files_in(folder.path()) == 2);
}

TEST_CASE("write: a process that is killed leaves the file as it was, and nothing that a data set would read") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.file("a/1.png");
  std::filesystem::create_directories(path.parent_path());
  const at::Tensor before = random_image(3, 6, 6);
  write_png(before, path);
  Forked writer([&] {
    kill_at("images.write.whole");
    write_png(random_image(3, 7, 7), path);
  });
  CHECK(writer.join() < 0);
  CHECK(read_image(path).equal(before));
  CHECK(files_in(path.parent_path()) == 2);
  CHECK(image_folder(folder.path()).size() == 1);
}

TEST_CASE("write: what a process of the same number has left beside it is in nobody's way") {
  const TemporaryFolder folder;
  for (int number = 0; number < 1000; ++number)  // as after a container that was killed: its processes count alike
    write_file(folder.file(fmt::format(".shoal.{}.{}.part", ::getpid(), number)), Bytes{1});
  const at::Tensor image = random_image(3, 7, 7);
  write_png(image, folder.file("image.png"));
  CHECK(read_image(folder.file("image.png")).equal(image));
  CHECK(files_in(folder.path()) == 1001);
}

TEST_CASE("write: a folder of pictures made small by the workers of a pool") {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> files;
  for (int i = 0; i < 8; ++i) {
    files.emplace_back(folder.file("in/" + std::to_string(i) + ".jpg"),
                       folder.file("out/" + std::to_string(i) + ".png"));
    write_file(files.back().first, jpeg_of(smooth_image(60 + i, 80, i)));
  }
  std::filesystem::create_directories(folder.file("out"));
  Pool pool(2);
  std::size_t written = 0;
  for ([[maybe_unused]] auto nothing : pool.imap_unordered(
           [](const std::pair<std::string, std::string>& file) {
             const auto& [from, to] = file;
             write_png(transform_image(Resize{.size = {16}}, read_image(from, {.at_least = {16, 16}}), {}), to);
           },
           files))
    ++written;
  CHECK(written == 8);
  for (const auto& [from, to] : files) {
    CHECK(read_image(to).equal(transform_image(Resize{.size = {16}}, read_image(from, {.at_least = {16, 16}}), {})));
  }
}

TEST_CASE("decode mask: a palette's numbers and levels of grey as they are; what has none is refused") {
  at::Tensor colours = at::empty({3, 5, 7}, at::TensorOptions(at::kByte));
  for (std::int64_t y = 0; y < 5; ++y)
    for (std::int64_t x = 0; x < 7; ++x) colours.select(1, y).select(1, x).fill_(40 * ((x + y) % 4) + 3);
  const at::Tensor numbers = decode_mask(png_of(colours, PngKind::palette), "x");  // numbered as they come
  CHECK(numbers.sizes() == at::IntArrayRef({5, 7}));
  CHECK(numbers.mul(40).add(3).equal(colours[0]));
  const at::Tensor grey = random_image(1, 5, 7);
  CHECK(decode_mask(png_of(grey, PngKind::grey), "x").equal(grey[0]));
  const TemporaryFolder folder;
  write_png(grey, folder.file("mask.png"));
  CHECK(read_mask(folder.file("mask.png")).equal(grey[0]));
  CHECK_THROWS_WITH(decode_mask(png_of(colours), "m.png"),
                    ContainsSubstring("m.png") && ContainsSubstring("a palette"));
  CHECK_THROWS_AS(decode_mask(png_of(colours, PngKind::rgb16), "x"), DatasetError);
  CHECK_THROWS_WITH(decode_mask(jpeg_of(colours), "m.jpg"), ContainsSubstring("m.jpg: a JPEG has no class numbers"));
  CHECK_THROWS_WITH(decode_mask(png_of(grey, PngKind::grey), "x", {.max_pixels = 34}),
                    ContainsSubstring("7 x 5 pixels"));
}
