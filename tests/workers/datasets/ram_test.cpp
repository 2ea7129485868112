#include <fcntl.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/queue.h>
#include <shoal/ipc/session.h>
#include <shoal/tensors/share.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/ram_dataset.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"

using namespace shoal::test;
using shoal::DatasetError;
using shoal::forget_ram_files;
using shoal::load_ram_files;
using shoal::ram_dataset;
using shoal::RamFiles;
using Paths = std::vector<std::filesystem::path>;

static_assert(shoal::Encodable<shoal::RamDataset> && shoal::Encodable<RamFiles>);
static_assert(shoal::MapDataset<shoal::RamDataset> && shoal::MapDataset<RamFiles>);

namespace {

constexpr shoal::RamOptions kQuiet{.progress = false};

Paths some_files(const TemporaryFolder& folder, int count = 3) {
  Paths paths;
  for (int i = 0; i < count; ++i) {
    paths.push_back(folder.file(std::to_string(i)));
    write_file(paths.back(), Bytes(std::size_t(10 * i), std::uint8_t('a' + i)));
  }
  return paths;
}

TemporaryFolder& with_images(TemporaryFolder& folder) {
  for (int i = 0; i < 6; ++i) {
    const std::string name = std::string(i < 3 ? "a/" : "b/") + std::to_string(i) + ".png";
    write_file(folder.file(name), png_of(smooth_image(10 + i, 12, i)));
  }
  return folder;
}

bool same_memory(const RamFiles& a, const RamFiles& b) { return a.bytes.const_data_ptr() == b.bytes.const_data_ptr(); }

std::string shown(const Paths& paths, const std::string& label) {
  const std::string path = (paths[0].parent_path().parent_path() / "shoal-test-bar").native();
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  load_ram_files(paths, {.label = label, .fd = fd});
  ::close(fd);
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  ::unlink(path.c_str());
  return text;
}

}  // namespace

TEST_CASE("ram files: the bytes of the files, in the heap, one by one") {
  const TemporaryFolder folder;
  const Paths paths = some_files(folder);
  const RamFiles files = load_ram_files(paths, kQuiet);
  CHECK(files.size() == 3);
  CHECK(files.total_bytes() == 30);
  CHECK(shoal::is_shared(files.bytes));
  CHECK(files.get(0).numel() == 0);
  CHECK(files.get(2).eq('c').all().item<bool>());
  CHECK(files.file(1).size() == 10);
  CHECK(files.names[2] == paths[2].native());
  CHECK_THROWS_AS(files.get(3), std::out_of_range);
  CHECK(forget_ram_files(paths));
}

TEST_CASE("ram files: what was read once is not read again, until it is forgotten") {
  const TemporaryFolder folder;
  const Paths paths = some_files(folder);
  const RamFiles first = load_ram_files(paths, kQuiet);
  write_file(paths[2], Bytes(5, 'x'));
  CHECK(same_memory(load_ram_files(paths, kQuiet), first));
  CHECK(forget_ram_files(paths));
  CHECK_FALSE(forget_ram_files(paths));
  const RamFiles again = load_ram_files(paths, kQuiet);
  CHECK_FALSE(same_memory(again, first));
  CHECK(again.total_bytes() == 15);
  CHECK(first.total_bytes() == 30);
  CHECK(forget_ram_files(paths));
}

TEST_CASE("ram files: other lists of files are other data") {
  const TemporaryFolder folder;
  const Paths paths = some_files(folder);
  const Paths fewer = {paths[1], paths[2]}, turned = {paths[2], paths[1]};
  const RamFiles a = load_ram_files(fewer, kQuiet), b = load_ram_files(turned, kQuiet);
  CHECK_FALSE(same_memory(a, b));
  CHECK(b.file(0).size() == 20);
  CHECK((forget_ram_files(fewer) && forget_ram_files(turned)));
}

TEST_CASE("ram files: of several processes one reads, the others map the same memory") {
  const TemporaryFolder folder;
  const Paths paths = some_files(folder);
  shoal::Queue<at::Tensor> results(8);
  shoal::Queue<int> finish(8);
  auto rank = [&] {
    results.put(load_ram_files(paths, kQuiet).bytes);
    (void)finish.get();  // the one that has read keeps it findable as long as it lives
  };
  {
    Forked a(rank), b(rank), c(rank);
    std::vector<at::Tensor> seen;
    for (int i = 0; i < 3; ++i) seen.push_back(results.get());
    CHECK(seen[1].const_data_ptr() == seen[0].const_data_ptr());
    CHECK(seen[2].const_data_ptr() == seen[0].const_data_ptr());
    for (int i = 0; i < 3; ++i) finish.put(0);
    CHECK((a.join() == 0 && b.join() == 0 && c.join() == 0));
  }
}

TEST_CASE("ram files: a process that is killed while it reads is replaced by the next") {
  const TemporaryFolder folder;
  const Paths paths = some_files(folder);
  for (int passed = 0; passed < 3; ++passed) {
    Forked reader([&] {
      shoal::kill_at("ram_files.read.some", passed);
      load_ram_files(paths, kQuiet);
    });
    const RamFiles files = load_ram_files(paths, kQuiet);  // while it reads, or after
    CHECK(files.total_bytes() == 30);
    CHECK(files.get(2).eq('c').all().item<bool>());
    CHECK(reader.join() <= 0);  // killed, or it found what this process has read
    CHECK(forget_ram_files(paths));
  }
}

TEST_CASE("ram files: what a killed process had read stays with those that have it") {
  const TemporaryFolder folder;
  const Paths paths = some_files(folder);
  shoal::Queue<at::Tensor> results(1);
  RamFiles files;
  {
    shoal::Queue<int> go_on(1);
    Forked reader([&] {
      const RamFiles read = load_ram_files(paths, kQuiet);
      results.put(read.bytes);
      (void)go_on.get();
    });
    const at::Tensor bytes = results.get();
    files = load_ram_files(paths, kQuiet);
    CHECK(files.bytes.const_data_ptr() == bytes.const_data_ptr());
    reader.kill();
  }
  shoal::Session::current().reclaim_all();
  CHECK(files.get(2).eq('c').all().item<bool>());
  CHECK_FALSE(forget_ram_files(paths));
}

TEST_CASE("ram files: a file that can't be read is named, and nothing stays") {
  const TemporaryFolder folder;
  Paths paths = some_files(folder);
  paths.push_back(folder.file("missing"));
  const std::size_t before = shoal::heap_bytes_in_use();
  CHECK_THROWS_WITH(load_ram_files(paths, kQuiet), ContainsSubstring("missing: can't be looked at: No such file"));
  CHECK_THROWS_AS(load_ram_files(paths, kQuiet), DatasetError);  // no claim is left to wait for
  CHECK(shoal::heap_bytes_in_use() == before);
  CHECK_THROWS_AS(load_ram_files({}, kQuiet), std::invalid_argument);
}

TEST_CASE("ram files: more than the budget allows is refused before anything is read, with what is missing") {
  const TemporaryFolder folder;
  const Paths paths = {folder.file("large")};
  std::ofstream(paths[0]).put('x');
  std::filesystem::resize_file(paths[0], std::uintmax_t{1} << 39U);  // a hole: it takes no disk
  CHECK_THROWS_AS(load_ram_files(paths, kQuiet), shoal::OutOfSharedMemory);
  CHECK_THROWS_WITH(load_ram_files(paths, kQuiet),
                    ContainsSubstring("1 files with 512.00 GiB are to be kept in memory") &&
                        ContainsSubstring("iB more than there is; nothing was read"));
}

TEST_CASE("ram files: the progress bar says how much there is, and how much a second") {
  const TemporaryFolder folder;
  const Paths paths = some_files(folder);
  CHECK_THAT(shown(paths, "train"),
             ContainsSubstring("train: 3 files, 30 bytes") && ContainsSubstring("MiB/s") && ContainsSubstring("100%"));
  CHECK(shown(paths, "train").empty());  // only who reads shows one
  CHECK(forget_ram_files(paths));
}

TEST_CASE("files_below: all files of a folder, by path") {
  const TemporaryFolder folder;
  write_file(folder.file("b/1"), {});
  write_file(folder.file("a"), {});
  CHECK(shoal::files_below(folder.path()) == Paths{folder.file("a"), folder.file("b/1")});
  CHECK_THROWS_WITH(shoal::files_below(folder.file("x")), ContainsSubstring("no such folder"));
}

TEST_CASE("ram dataset: the samples of the image folder") {
  TemporaryFolder folder;
  with_images(folder);
  {
    const shoal::RamDataset images = ram_dataset(folder.path(), {.reading = kQuiet});
    const shoal::ImageFolder expected = shoal::image_folder(folder.path());
    CHECK(images.classes == expected.classes);
    REQUIRE(images.size() == 6);
    for (std::int64_t i = 0; i < 6; ++i) {
      CHECK(images.get(i).data.equal(expected.get(i).data));
      CHECK(images.get(i).target.equal(expected.get(i).target));
    }
    CHECK_FALSE(images.cache.has_value());
  }
  Paths paths;
  for (const auto& file : shoal::find_images(folder.path()).files) paths.push_back(file.path);
  CHECK(ram_dataset(paths, {.reading = kQuiet}).get(5).target.item<std::int64_t>() == 0);
  CHECK(forget_ram_files(paths));
}

TEST_CASE("ram dataset: what is done to an example is not in the next one, with a cache or without") {
  TemporaryFolder folder;
  with_images(folder);
  for (const shoal::ImageSize cache : {shoal::ImageSize{8, 8}, shoal::ImageSize{}}) {
    const shoal::RamDataset images = ram_dataset(folder.path(), {.reading = kQuiet, .cache = cache});
    const at::Tensor picture = images.get(5).data.clone();
    for (int epoch = 0; epoch < 3; ++epoch) {
      const shoal::Example example = images.get(5);
      CHECK(example.data.equal(picture));
      CHECK(example.target.item<std::int64_t>() == 1);
      example.data.zero_();
      example.target.fill_(-1);
    }
  }
  Paths paths;
  for (const auto& file : shoal::find_images(folder.path()).files) paths.push_back(file.path);
  CHECK(forget_ram_files(paths));
}

TEST_CASE("ram dataset: the cache keeps pictures of one size, decoded once for all processes") {
  TemporaryFolder folder;
  with_images(folder);
  const shoal::RamDataset images = ram_dataset(folder.path(), {.reading = kQuiet, .cache = {8}});
  CHECK(images.cache->filled() == 0);
  const at::Tensor first = images.get(2).data;
  CHECK(first.sizes() == at::IntArrayRef({3, 8, 8}));
  CHECK(images.cache->filled() == 1);
  CHECK(images.get(2).data.equal(first));
  const at::Tensor kept = images.get(2).data;
  CHECK(kept.equal(images.cache->pictures.select(0, 2)));
  {
    shoal::DataLoader loader({.batch_size = 2, .num_workers = 2}, images);
    std::int64_t next = 0;
    for (const shoal::Example& batch : loader) next += batch.data.size(0);
    CHECK(next == 6);
  }
  CHECK(images.cache->filled() == 6);  // by the workers, in this very memory
  Paths paths;
  for (const auto& file : shoal::find_images(folder.path()).files) paths.push_back(file.path);
  CHECK(forget_ram_files(paths));
}

TEST_CASE("decoded cache: a place that a killed process was filling is filled by the next, a living one's is left") {
  const shoal::DecodedCache cache = shoal::DecodedCache::of(2, {3, 4, 5});
  const at::Tensor picture = smooth_image(4, 5);
  Forked victim([&] {
    shoal::kill_at("decoded_cache.keep.claimed");
    cache.keep(0, picture);
  });
  CHECK(victim.join() == -SIGKILL);
  CHECK_FALSE(cache.find(0).has_value());
  cache.keep(0, picture);
  CHECK(cache.find(0)->equal(picture));
  cache.keep(0, smooth_image(4, 5, 9));  // the first one stays
  CHECK(cache.find(0)->equal(picture));

  static_cast<std::uint32_t*>(cache.states.mutable_data_ptr())[1] = shoal::Session::current().self().word();
  cache.keep(1, picture);
  CHECK_FALSE(cache.find(1).has_value());
  CHECK_THROWS_WITH(cache.keep(1, smooth_image(5, 5)), ContainsSubstring("[3, 5, 5]"));
}
