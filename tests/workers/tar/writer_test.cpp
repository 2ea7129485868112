// TarWriter: what is written comes back by its own type, and an archive that is finished stays as it is.
#include <fmt/format.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/tar/tar_dataset.h>
#include <shoal/workers/tar/tar_writer.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/beton/beton_vectors.h"
#include "tests/workers/faulty_dataset.h"
#include "tests/workers/tar/rows.h"

using namespace shoal;
using namespace shoal::test;

namespace {

const std::vector<std::uint8_t> kByteOfFile = {1};
const std::vector<TarContents> kFile = {{"x", kByteOfFile}};

struct LargeNumbers {
  struct Row {
    std::uint64_t id;
    std::int64_t label;
  };
  std::int64_t size() const { return 1; }
  Row get(std::int64_t) const { return {18'446'744'073'709'551'611U, -3}; }
};

struct KeyedRows {
  struct Row {
    std::string key;
    std::int64_t label;
  };
  std::vector<std::string> keys;
  std::int64_t size() const { return std::int64_t(keys.size()); }
  Row get(std::int64_t i) const { return {keys[std::size_t(i)], 10 * i}; }
};

/// Three archives of a run of 25 samples: n-00.tar to n-02.tar.
void write_earlier_run(const TemporaryFolder& folder) {
  TarWriter(folder.file("n-%02d.tar"), {.shard_samples = 10}).write(Rows{25});
}

std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) names.push_back(file.path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("tar writer: an archive that has its name is not written over") {
  const TemporaryFolder folder;
  TarWriter writer(folder.file("it.tar"));
  writer.add("a", kFile);
  writer.close();
  CHECK_THROWS_WITH(writer.add("b", kFile), ContainsSubstring("it.tar") && ContainsSubstring("%06d"));
  writer.close();
  CHECK(writer.archives().size() == 1);
  CHECK(TarFile(folder.file("it.tar")).sample(0).key == "a");
  TarWriter numbered(folder.file("n-%d.tar"));
  for (const char* key : {"a", "b"}) {
    numbered.add(key, kFile);
    numbered.close();
  }
  CHECK(TarFile(folder.file("n-1.tar")).sample(0).key == "b");
}

TEST_CASE("tar writer: write() is for a writer that has written nothing, also after one that failed") {
  const TemporaryFolder folder;
  const auto refused = [&](TarWriter& writer) {
    CHECK_THROWS_WITH(writer.write(Rows{2}), ContainsSubstring(folder.path()) && ContainsSubstring("a new TarWriter"));
  };
  TarWriter twice(folder.file("it.tar"));
  twice.write(Rows{3});
  refused(twice);
  CHECK(tar_dataset(folder.file("it.tar")).size() == 3);
  TarWriter failed(folder.file("n-%d.tar"), {.shard_samples = 2});
  CHECK_THROWS_AS(failed.write(Faulty{.throws_at = 5}), TarWriteFailed);
  refused(failed);
  CHECK(failed.archives().size() == 2);
  TarWriter added(folder.file("a.tar"));
  added.add("a", kFile);
  refused(added);
  added.close();
  CHECK(tar_dataset(folder.file("a.tar")).size() == 1);
}

TEST_CASE("tar writer: a file that is no picture, whatever its name, is refused by that name") {
  const TemporaryFolder folder;
  struct Pictures {
    struct Row {
      EncodedImage image;
    };
    std::vector<std::uint8_t> bytes;
    std::int64_t size() const { return 1; }
    Row get(std::int64_t) const { return {{bytes, "there/notes.jpg"}}; }
  };
  const auto refused = [&](std::vector<std::uint8_t> bytes, const std::string& why) {
    CHECK_THROWS_WITH(TarWriter(folder.file("it.tar")).write(Pictures{std::move(bytes)}),
                      ContainsSubstring("there/notes.jpg: " + why));
    CHECK(names_in(folder).empty());
  };
  refused({'t', 'e', 'x', 't'}, "neither a JPEG nor a PNG");
  refused({0xFF, 0x00}, "neither a JPEG nor a PNG");
  refused({}, "an empty file");
}

TEST_CASE("tar writer: a key is the one of the sample before in one archive only") {
  const TemporaryFolder folder;
  TarWriter closed(folder.file("n-%d.tar"));
  closed.add("a", kFile);
  closed.close();
  CHECK_NOTHROW(closed.add("a", kFile));
  TarWriter failed(folder.file("f.tar"));
  CHECK_THROWS_AS(failed.write(Faulty{.throws_at = 1}), TarWriteFailed);
  CHECK_NOTHROW(failed.add("000000", kFile));
  CHECK_THROWS_WITH(TarWriter(folder.file("e.tar")).add("", kFile), ContainsSubstring("\"x\" as its extension"));
}

TEST_CASE("tar writer: extensions that differ in capitals alone are one to readers, and refused") {
  const TemporaryFolder folder;
  TarWriter writer(folder.file("it.tar"));
  CHECK_THROWS_WITH(writer.add("a", std::vector<TarContents>{{"JPG", kByteOfFile}, {"jpg", kByteOfFile}}),
                    ContainsSubstring("two files \"jpg\""));
  writer.add("a", std::vector<TarContents>{{"JPG", kByteOfFile}, {"cls", kByteOfFile}});
  writer.close();
  CHECK(TarFile(folder.file("it.tar")).sample(0).parts.size() == 2);
}

TEST_CASE("tar writer: shard_bytes counts all that an archive has, its end too") {
  const TemporaryFolder folder;
  TarWriter writer(folder.file("n-%02d.tar"), {.shard_bytes = 20480});
  for (int i = 0; i < 40; ++i) writer.add(fmt::format("{}", i), kFile);
  writer.close();
  CHECK(writer.archives().size() == 3);  // 19 samples of 1024 bytes, and the end, fill 20480
  for (const auto& archive : writer.archives()) CHECK(std::filesystem::file_size(archive) <= 20480);
}

TEST_CASE(
    "tar writer: unsigned integers come back whole; a .beton file, whose integers are int64, refuses large ones") {
  const TemporaryFolder folder;
  TarWriter(folder.file("it.tar")).write(LargeNumbers{});
  const auto dataset = tar_dataset<LargeNumbers::Row>(folder.file("it.tar"));
  CHECK(dataset.get(0).id == 18'446'744'073'709'551'611U);
  CHECK(dataset.get(0).label == -3);
  const auto bytes = dataset.parts(0).find("id.cls")->bytes;
  CHECK(std::string(bytes.begin(), bytes.end()) == "18446744073709551611");
  struct Signed {
    std::int64_t id;
  };
  struct Narrow {
    std::uint32_t id;
  };
  struct Unsigned {
    std::uint64_t label;
  };
  CHECK_THROWS_WITH(tar_dataset<Signed>(folder.file("it.tar")).get(0),
                    EndsWith("000000.id.cls: \"18446744073709551611\" is no integer"));
  CHECK_THROWS_WITH(tar_dataset<Narrow>(folder.file("it.tar")).get(0), ContainsSubstring("number that the member"));
  CHECK_THROWS_WITH(tar_dataset<Unsigned>(folder.file("it.tar")).get(0), ContainsSubstring("\"-3\" is no integer"));
  CHECK_THROWS_WITH(BetonWriter(folder.file("it.beton")).write(LargeNumbers{}),
                    ContainsSubstring("18446744073709551611"));
}

TEST_CASE("tar writer: a std::string member `key` is the sample's key, unless it has a file of its own") {
  const TemporaryFolder folder;
  const KeyedRows rows{{"n01440764", "train/n01440765"}};
  TarWriter(folder.file("it.tar"), {.num_workers = GENERATE(0, 2)}).write(rows);
  const auto dataset = tar_dataset<KeyedRows::Row>(folder.file("it.tar"));
  REQUIRE(dataset.size() == 2);
  CHECK(dataset.get(1).key == "train/n01440765");
  CHECK(dataset.get(1).label == 10);
  CHECK(dataset.parts(1).parts.size() == 1);
  CHECK_THROWS_WITH(TarWriter(folder.file("twice.tar")).write(KeyedRows{{"a", "a"}}),
                    ContainsSubstring("the key of the sample before"));
  TarWriter(folder.file("apart.tar"), {.extensions = {{"key", "key.txt"}}}).write(rows);
  const auto apart = tar_dataset<KeyedRows::Row>(folder.file("apart.tar"), {.extensions = {{"key", {"key.txt"}}}});
  CHECK(apart.get(1).key == "train/n01440765");
  CHECK(apart.parts(1).key == "000001");
}

TEST_CASE(
    "tar writer: where an earlier run's archives are, of any number, nothing is written unless they are replaced") {
  const TemporaryFolder folder;
  write_earlier_run(folder);
  const auto before = names_in(folder);
  REQUIRE(before.size() == 6);  // and their indices
  const auto is_refused = [&](const std::string& pattern, const std::string& what) {
    CHECK_THROWS_WITH(TarWriter(folder.file(pattern)).write(Rows{3}),
                      ContainsSubstring(pattern) && ContainsSubstring(what) && ContainsSubstring("replace"));
    CHECK_THROWS_AS(TarWriter(folder.file(pattern)).add("a", kFile), DatasetError);
    CHECK(names_in(folder) == before);
  };
  is_refused("n-%02d.tar",
             "there already are 3 archives, " + folder.file("n-00.tar") + " to " + folder.file("n-02.tar"));
  is_refused("n-%06d.tar", "3 archives");  // n-*.tar reads these, too
  // Other names are in nobody's way, and a name without a number is replaced as a file is.
  for (const char* other : {"m-%02d.tar", "n-%02d.x.tar", "n-1%02d.tar"})
    CHECK_NOTHROW(TarWriter(folder.file(other)).add("a", kFile));
  CHECK_NOTHROW(TarWriter(folder.file("n-00.tar")).write(Rows{2}));
  CHECK(tar_dataset(folder.file("n-*.tar")).size() == 17);
  TarWriter(folder.file("k-%d.tar")).write(Rows{1});
  CHECK_THROWS_WITH(TarWriter(folder.file("k-%d.tar")).write(Rows{1}),
                    ContainsSubstring("there already is the archive " + folder.file("k-0.tar")));
}

TEST_CASE("tar writer: a name with more than one place for a number is refused") {
  for (const char* pattern : {"o-%d-%d.tar", "o-%02d/%06d.tar"}) {
    CHECK_THROWS_AS(TarWriter(pattern), std::invalid_argument);
    CHECK_THROWS_WITH(TarWriter(pattern, {.shard_samples = 2}),
                      ContainsSubstring(pattern) && ContainsSubstring("more than one place for a number"));
  }
  CHECK_NOTHROW(TarWriter("o-%d-%x.tar"));
}

TEST_CASE("tar writer: if one of several cannot take its place, the error says which are new, and close() goes on") {
  const TemporaryFolder folder;
  write_earlier_run(folder);
  TarWriter writer(folder.file("n-%02d.tar"), {.shard_samples = 1, .index = false, .replace = true});
  for (const char* key : {"a", "b", "c"}) writer.add(key, kFile);
  std::filesystem::remove(folder.file("n-01.tar"));
  std::filesystem::create_directories(folder.file("n-01.tar/in"));
  CHECK_THROWS_AS(writer.close(), DatasetError);
  CHECK_THROWS_WITH(writer.close(),
                    ContainsSubstring("n-01.tar: can't be renamed to that") &&
                        ContainsSubstring("these have their names: the archive " + folder.file("n-00.tar")) &&
                        ContainsSubstring("in their places: 2 archives, " + folder.file("n-01.tar") + " and " +
                                          folder.file("n-02.tar")));
  CHECK(writer.archives().size() == 1);
  CHECK(TarFile(folder.file("n-02.tar")).size() == 5);
  std::filesystem::remove_all(folder.file("n-01.tar"));
  writer.close();
  CHECK(writer.archives().size() == 3);
  CHECK(tar_dataset(folder.file("n-*.tar")).size() == 3);
}

TEST_CASE("tar writer: what replaces an earlier run's archives leaves none of these, and no other file") {
  const TemporaryFolder folder;
  write_earlier_run(folder);
  TarWriter(folder.file("n-%02d.x.tar")).write(Rows{1});
  TarWriter writer(folder.file("n-%02d.tar"), {.shard_samples = 10, .replace = true, .num_workers = GENERATE(0, 2)});
  writer.write(Rows{12});
  CHECK(writer.archives() == std::vector<std::filesystem::path>{folder.file("n-00.tar"), folder.file("n-01.tar")});
  CHECK(names_in(folder) == std::vector<std::string>{"n-00.tar", "n-00.tar.index", "n-00.x.tar", "n-00.x.tar.index",
                                                     "n-01.tar", "n-01.tar.index"});
  CHECK(tar_dataset(folder.file("n-??.tar")).size() == 12);
}

TEST_CASE("tar writer: until those are whole that replace them, an earlier run's archives are as they were") {
  const TemporaryFolder folder;
  write_earlier_run(folder);
  const auto before = names_in(folder);
  const auto first = bytes_of_file(folder.file("n-00.tar"));
  const auto as_before = [&] { return names_in(folder) == before && bytes_of_file(folder.file("n-00.tar")) == first; };
  TarWriter failed(folder.file("n-%02d.tar"), {.shard_samples = 10, .replace = true});
  CHECK_THROWS_AS(failed.write(Faulty{.throws_at = 35}), TarWriteFailed);
  CHECK(failed.archives().empty());
  CHECK(as_before());
  {
    TarWriter given_up(folder.file("n-%02d.tar"), {.shard_samples = 1, .replace = true});
    for (const char* key : {"a", "b", "c"}) given_up.add(key, kFile);
    CHECK(bytes_of_file(folder.file("n-00.tar")) == first);
  }
  CHECK(as_before());
}
