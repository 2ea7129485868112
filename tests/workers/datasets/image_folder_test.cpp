#include <shoal/workers/datasets/image_folder.h>

#include <shoal/workers/data/data_loader.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shoal::test;
using shoal::DatasetError;
using shoal::image_folder;

static_assert(shoal::Encodable<shoal::ImageFolder>);
static_assert(shoal::MapDataset<shoal::ImageFolder>);

namespace {

void add(const TemporaryFolder& folder, const std::string& name, int phase = 0) {
  write_file(folder.file(name), png_of(smooth_image(6, 8, phase)));
}

}  // namespace

TEST_CASE("image folder: classes by name, files by folder and name, as torchvision has them") {
  const TemporaryFolder folder;
  for (const char* name : {"dog/b.png", "dog/a.PNG", "dog/sub/0.png", "cat/z.png", "cat/readme.txt", "bird/1.jpeg"}) {
    add(folder, name);
  }
  write_file(folder.file("no_class.png"), {});
  const shoal::ImageFolder images = image_folder(folder.path());
  CHECK(images.classes == std::vector<std::string>{"bird", "cat", "dog"});
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < images.size(); ++i) {
    names.emplace_back(images.paths[i].substr(folder.path().size() + 1));
  }
  CHECK(names == std::vector<std::string>{"bird/1.jpeg", "cat/z.png", "dog/a.PNG", "dog/b.png", "dog/sub/0.png"});
  CHECK(images.targets[4].item<std::int64_t>() == 2);
}

TEST_CASE("image folder: a sample is the picture, whatever the name says it is, and its class") {
  const TemporaryFolder folder;
  add(folder, "a/1.jpg", 5);  // a PNG
  add(folder, "b/1.png", 9);
  const shoal::ImageFolder images = image_folder(folder.path());
  CHECK(images.get(0).data.equal(smooth_image(6, 8, 5)));
  CHECK(images.get(1).data.equal(smooth_image(6, 8, 9)));
  CHECK(images.get(1).target.item<std::int64_t>() == 1);
  CHECK_THROWS_AS(images.get(2), std::out_of_range);
}

TEST_CASE("image folder: what is done to an example is not in the next one") {
  const TemporaryFolder folder;
  add(folder, "a/1.png");
  add(folder, "b/1.png");
  const shoal::ImageFolder images = image_folder(folder.path());
  for (int epoch = 0; epoch < 2; ++epoch) {
    const shoal::Example example = images.get(1);
    CHECK(example.data.equal(smooth_image(6, 8)));
    CHECK(example.target.item<std::int64_t>() == 1);
    example.data.zero_();
    example.target.fill_(-1);
  }
}

TEST_CASE("image folder: decodes JPEGs no larger than asked for") {
  const TemporaryFolder folder;
  write_file(folder.file("a/1.jpg"), jpeg_of(smooth_image(400, 600)));
  CHECK(image_folder(folder.path(), {{90, 90}}).get(0).data.sizes() == at::IntArrayRef({3, 100, 150}));
}

TEST_CASE("image folder: a file that is no picture is named with its index") {
  const TemporaryFolder folder;
  add(folder, "a/1.png");
  write_file(folder.file("a/2.png"), {'n', 'o'});
  const shoal::ImageFolder images = image_folder(folder.path());
  CHECK_THROWS_WITH(images.get(1), ContainsSubstring("sample 1: ") && ContainsSubstring("a/2.png: neither a JPEG nor"));
}

TEST_CASE("image folder: a folder without classes, or a class without pictures, is an error at once") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(image_folder(folder.file("none")), ContainsSubstring("none: no such folder"));
  CHECK_THROWS_WITH(image_folder(folder.path()), ContainsSubstring("no folder in this folder"));
  add(folder, "full/1.png");
  CHECK_THROWS_WITH(image_folder(folder.file("full/1.png")), ContainsSubstring("full/1.png: this is a file; "));
  std::filesystem::create_directory(folder.file("hollow"));
  CHECK_THROWS_WITH(image_folder(folder.path()), ContainsSubstring("hollow: no .jpg, .jpeg or .png file"));
}

TEST_CASE("image folder: links are followed, but not to where nothing is, or round and round") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder, elsewhere;
  add(elsewhere, "more/3.png");
  add(folder, "a/1.png");
  fs::create_symlink(folder.file("a/1.png"), folder.file("a/2.png"));
  fs::create_directory_symlink(elsewhere.file("more"), folder.file("a/more"));
  fs::create_directory_symlink(folder.file("a"), folder.file("b"));  // a folder beside it, not above
  fs::create_symlink("/nowhere", folder.file("a/readme"));
  fs::create_symlink("/nowhere", folder.file("readme"));
  CHECK(image_folder(folder.path()).size() == 6);
  const auto refused = [&](const char* target, const std::string& link, const std::string& what) {
    CAPTURE(link);
    fs::create_symlink(target, folder.file(link));
    CHECK_THROWS_AS(image_folder(folder.path()), DatasetError);
    CHECK_THROWS_WITH(image_folder(folder.path()), ContainsSubstring(folder.file(link)) && ContainsSubstring(what));
    fs::remove(folder.file(link));
  };
  refused("/nowhere/.git/annex/objects/x.png", "a/4.png", "No such file");
  refused("4.png", "a/4.png", "Too many levels of symbolic links");
  refused(".", "a/again", "lies in itself");
  refused("../more", "a/more/again", "lies in itself");
  refused(".", "again", "lies in itself");
  refused("loop", "a/loop", "Too many levels of symbolic links");
  refused("again", "again", "Too many levels of symbolic links");
  fs::create_symlink("root", folder.file("root"));
  CHECK_THROWS_AS(image_folder(folder.file("root")), DatasetError);
}

TEST_CASE("image folder: a loader's workers decode, and an error of theirs names the file") {
  const TemporaryFolder folder;
  for (int i = 0; i < 10; ++i) add(folder, "a/" + std::to_string(i) + ".png", i);
  {
    shoal::DataLoader loader({.batch_size = 4, .num_workers = 2}, image_folder(folder.path()));
    std::int64_t next = 0;
    for (const shoal::Example& batch : loader) {
      for (std::int64_t i = 0; i < batch.data.size(0); ++i) CHECK(batch.data[i].equal(smooth_image(6, 8, int(next++))));
    }
    CHECK(next == 10);
  }
  write_file(folder.file("a/5.png"), {'n', 'o'});
  shoal::DataLoader loader({.batch_size = 4, .num_workers = 1}, image_folder(folder.path()));
  CHECK_THROWS_WITH(
      [&] {
        for (const auto& batch : loader) (void)batch;
      }(),
      ContainsSubstring("5.png"));
}
