// TarWriter: with worker processes the archives of one process, and what is left of a sample, a worker or a write that fails.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/tar/tar_dataset.h>
#include <shoal/workers/tar/tar_writer.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/beton/beton_vectors.h"
#include "tests/workers/faulty_dataset.h"
#include "tests/workers/tar/rows.h"

using namespace shoal;
using namespace shoal::test;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::vector<std::uint8_t>> files_of(const TemporaryFolder& folder) {
  std::map<std::string, std::vector<std::uint8_t>> files;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    files[entry.path().filename()] = bytes_of_file(entry.path());
  return files;
}

std::set<std::string> names_of(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.insert(entry.path().filename());
  return names;
}

}  // namespace

TEST_CASE("tar writer: the same archives with 0, 1, 2 and 3 workers and chunks of any size, samples in their order") {
  const TemporaryFolder alone;
  TarWriterOptions options{.shard_samples = 7, .index = false};
  TarWriter(alone.file("n-%03d.tar"), options).write(Rows{});
  const auto expected = files_of(alone);
  REQUIRE(expected.size() == 7);
  for (int workers = 1; workers <= 3; ++workers) {
    const TemporaryFolder folder;
    options.num_workers = workers;
    options.chunk_size = 1 + 3 * workers;
    TarWriter(folder.file("n-%03d.tar"), options).write(Rows{});
    const auto files = files_of(folder);
    REQUIRE(files.size() == expected.size());
    for (const auto& [name, bytes] : expected) {
      INFO(name);
      CHECK((files.contains(name) && files.at(name) == bytes));
    }
  }
  struct Read {
    std::string key;
    at::Tensor image;
    std::int64_t label;
    double score;
    std::string words;
    BetonJson meta;
    at::Tensor vec;
  };
  const auto dataset = tar_dataset<Read>(alone.file("n-*.tar"));
  REQUIRE(dataset.size() == 43);
  for (std::int64_t i = 0; i < 43; ++i) {
    const Read read = dataset.get(i);
    const Row row = Rows{}.get(i);
    CHECK(read.key == fmt::format("{:06}", i));
    CHECK(at::equal(read.image, row.image));
    CHECK(read.label == row.label);
    CHECK(read.score == row.score);
    CHECK(read.words == row.words);
    CHECK(read.meta == row.meta);
    CHECK(at::equal(read.vec, row.vec));
  }
}

TEST_CASE("tar writer: a sample that throws ends it with its index; finished archives stay, and nothing else") {
  const TemporaryFolder folder;
  const int workers = GENERATE(0, 2);
  TarWriter writer(folder.file("n-%03d.tar"),
                   {.shard_samples = 25, .index = false, .num_workers = workers, .chunk_size = 7});
  try {
    writer.write(Faulty{.throws_at = 61});
    FAIL("it was written");
  } catch (const TarWriteFailed& error) {
    CHECK(error.index() == 61);
    CHECK_THAT(error.what(),
               ContainsSubstring("n-%03d.tar: sample 61 can't be written") && ContainsSubstring("this one is no good"));
  }
  CHECK(names_of(folder) == std::set<std::string>{"n-000.tar", "n-001.tar"});  // while the writer is still there
  CHECK(tar_dataset(folder.file("n-*.tar")).size() == 50);
}

TEST_CASE("tar writer: a worker that dies ends it with its signal and the index at which it was, and leaves nothing") {
  const TemporaryFolder folder;
  TarWriter writer(folder.file("it.tar"), {.num_workers = 2, .chunk_size = 7});
  try {
    writer.write(Faulty{.dies_at = 38});
    FAIL("it was written");
  } catch (const TarWriteFailed& error) {
    CHECK(error.index() == 38);
    CHECK_THAT(error.what(), ContainsSubstring("sample 38 can't be written") && ContainsSubstring("SIGKILL"));
  }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("tar writer: what the parent refuses is no sample's fault, and data sets that cannot cross have no workers") {
  const TemporaryFolder folder;
  TarWriter nowhere(folder.file("none/it.tar"), {.num_workers = 1});
  CHECK_THROWS_WITH(nowhere.write(Faulty{}), ContainsSubstring("none/it.tar: can't be written"));
  CHECK_THROWS_AS(
      TarWriter(folder.file("it.tar"), {.extensions = {{"field0", "a/b"}}, .num_workers = 1}).write(Faulty{}),
      std::invalid_argument);
  class Doubles {
   public:
    explicit Doubles(std::int64_t factor) : value_([factor](std::int64_t i) { return factor * i; }) {}
    std::int64_t size() const { return 3; }
    std::int64_t get(std::int64_t i) const { return value_(i); }

   private:
    std::function<std::int64_t(std::int64_t)> value_;
  };
  const Doubles inherited(2);
  CHECK_THROWS_WITH(TarWriter(folder.file("it.tar"), {.num_workers = 1}).write(inherited),
                    ContainsSubstring("tar writer: num_workers is 1, but this data set cannot go to workers"));
  CHECK(fs::is_empty(folder.path()));
  TarWriter(folder.file("it.tar")).write(inherited);
  CHECK(tar_dataset(folder.file("it.tar")).get(2).at("field0.cls").item<std::int64_t>() == 4);
  CHECK_THROWS_WITH(TarWriter("it.tar", {.num_workers = -1}), ContainsSubstring("num_workers is -1, chunk_size 100"));
  CHECK_THROWS_WITH(TarWriter("it.tar", {.chunk_size = 0}), ContainsSubstring("num_workers is 0, chunk_size 0"));
}

TEST_CASE("tar writer: after a write that the file system refuses nothing is added, and no archive is made") {
  const TemporaryFolder folder;
  Forked writer([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const std::vector<std::uint8_t> large(3 << 20, 7);
    const std::vector<TarContents> files{{"bin", large}};
    const rlimit limit{2 << 20, RLIM_INFINITY}, none{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    TarWriter tar(folder.file("it.tar"));
    const auto said = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const DatasetError& error) {
        return error.what();
      }
      return "nothing";
    };
    const auto expect = [](const std::string& text, const char* part) {
      if (text.find(part) == std::string::npos) throw std::runtime_error("it said: " + text);
    };
    expect(said([&] { tar.add("1", files); }), "can't be written: File too large");
    ::setrlimit(RLIMIT_FSIZE, &none);  // there is room again
    expect(said([&] { tar.add("2", files); }), "a write of it has failed before");
    expect(said([&] { tar.close(); }), "a write of it has failed before");
  });
  CHECK(writer.join() == 0);
  CHECK(fs::is_empty(folder.path()));
}
