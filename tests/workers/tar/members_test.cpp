// Tar archives by their bytes: every form of header, hostile ones, and the index of samples.
#include <shoal/internal/workers/tar/format/tar_header.h>
#include <shoal/internal/workers/tar/format/tar_index.h>
#include <shoal/internal/workers/tar/format/tar_members.h>
#include <shoal/internal/workers/tar/format/tar_sample.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/tar/tar_file.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using namespace shoal::detail;
using namespace shoal::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// An archive in the making.
struct Archive {
  Bytes bytes;

  std::size_t put(const std::string& text) {
    const std::size_t at = bytes.size();
    bytes.insert(bytes.end(), text.begin(), text.end());
    bytes.resize(tar_blocks(bytes.size()));
    return at;
  }
  std::size_t add(const std::string& name, const std::string& contents, char type = '0') {
    const auto header = tar_header(name, contents.size(), type);
    const std::size_t at = put({header.begin(), header.end()});
    put(contents);
    return at;
  }
  Archive& end() {
    bytes.resize(bytes.size() + 2 * kTarBlock);
    return *this;
  }
  /// Changes a header and makes its checksum right.
  void change(std::size_t header, std::size_t at, const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) bytes[header + at + i] = std::uint8_t(text[i]);
    unsigned sum = 8 * ' ';
    for (std::size_t i = 0; i < kTarBlock; ++i) sum += i >= 148 && i < 156 ? 0 : bytes[header + i];
    char octal[9];
    std::snprintf(octal, sizeof octal, "%06o", sum);
    std::copy(octal, octal + 7, bytes.begin() + std::ptrdiff_t(header) + 148);
  }
};

std::vector<std::string> names_in(const Bytes& bytes) {
  TarMembers members(bytes, "it.tar");
  std::vector<std::string> names;
  while (const auto member = members.next())
    names.push_back(member->name + "=" + std::string(member->bytes.begin(), member->bytes.end()));
  return names;
}

void is_refused(const Bytes& bytes, const std::string& what) {
  CHECK_THROWS_WITH(names_in(bytes), StartsWith("it.tar: at ") && ContainsSubstring(what));
  CHECK_THROWS_AS(names_in(bytes), DatasetError);
}

}  // namespace

TEST_CASE("tar: files come in order, and what is no file is passed over") {
  Archive archive;
  archive.add("folder/", "", '5');
  archive.add("a.txt", "one");
  archive.add("link.txt", "", '2');
  archive.add("hard.txt", "", '1');
  archive.add("old/", "", '\0');  // as old archives have folders
  archive.add("volume", "label", 'V');
  archive.add("b.txt", "");
  archive.add("c.txt", std::string(1000, 'x'), '\0');
  archive.add("behind", "the end");
  archive.bytes.resize(archive.bytes.size() - 1024);
  CHECK(names_in(archive.end().bytes) ==
        std::vector<std::string>{"a.txt=one", "b.txt=", "c.txt=" + std::string(1000, 'x')});
  archive.add("ignored", "");
  CHECK(names_in(archive.bytes).size() == 3);
  archive.bytes.resize(archive.bytes.size() - 512 - 1024);  // no end mark
  CHECK(names_in(archive.bytes).size() == 3);
}

TEST_CASE("tar: long names as POSIX and as GNU have them, and sizes beyond octal digits") {
  const std::string longest = std::string(120, 'd') + "/" + std::string(200, 'n') + ".txt";
  Archive archive;
  archive.put(tar_headers(longest, 2));
  archive.put("ab");
  archive.add("././@LongLink", longest + '\0', 'L');
  archive.add("cut", "cd");
  archive.add("././@LongLink", "where it points", 'K');
  archive.add("linked", "");
  const std::size_t prefixed = archive.add("name.txt", "ef");
  archive.change(prefixed, 345, "some/folder");
  const std::size_t binary = archive.add("big.txt", "gh");
  archive.change(binary, 124, std::string("\x80\0\0\0\0\0\0\0\0\0\0\2", 12));
  archive.add("pax_global_header", "13 comment=x\n", 'g');
  archive.add("pax", "11 size=00\n12 path=p.x\n", 'x');
  archive.add("last", "");
  CHECK(names_in(archive.end().bytes) == std::vector<std::string>{longest + "=ab", longest + "=cd", "linked=",
                                                                  "some/folder/name.txt=ef", "big.txt=gh", "p.x="});
  // GNU's old headers have times where POSIX has a part of the name.
  archive.change(prefixed, 257, "ustar  ");
  CHECK(names_in(archive.bytes)[3] == "name.txt=ef");
}

TEST_CASE("tar: hostile headers are refused by archive and place") {
  const auto with = [](auto&& change) {
    Archive archive;
    archive.add("a.txt", "one");
    const std::size_t at = archive.add("b.txt", "two");
    change(archive, at);
    return archive.end().bytes;
  };
  is_refused(with([](Archive& archive, std::size_t at) { archive.bytes[at] ^= 1U; }), "at 1024: no header of a tar");
  is_refused(with([](Archive& a, std::size_t at) { a.change(at, 124, "77777777777"); }), "is it cut off?");
  is_refused(with([](Archive& a, std::size_t at) { a.change(at, 124, "0000000000x"); }), "size is no number");
  is_refused(with([](Archive& a, std::size_t at) { a.change(at, 124, std::string(12, '\xff')); }), "size is no number");
  is_refused(with([](Archive& a, std::size_t at) { a.change(at, 124, "\x80\x7f" + std::string(10, '\xff')); }),
             "size is no");
  is_refused(with([](Archive& a, std::size_t at) { a.change(at, 156, "S"); }), "a sparse file");
  is_refused(with([](Archive& a, std::size_t at) { a.change(at, 156, "M"); }), "another volume");
  const auto with_pax = [&](const std::string& records, char type = 'x') {
    return with([&](Archive& archive, std::size_t) {
      archive.add("pax", records, type);
      archive.add("c.txt", "three");
    });
  };
  is_refused(with_pax("999 path=x\n"), "another length");
  is_refused(with_pax("0 path=x\n"), "another length");
  is_refused(with_pax("9 path=xx"), "another length");
  is_refused(with_pax("7 path\n"), "no value");
  is_refused(with_pax("12 size=1x1\n"), "size is \"1x1\"");
  is_refused(with_pax("28 size=18446744073709551615\n"), "another length");
  is_refused(with_pax("29 size=18446744073709551615\n"), "is it cut off?");
  is_refused(with_pax("22 GNU.sparse.major=1\n"), "sparse");
  is_refused(with_pax("10 path=x\n", 'g'), "global pax header with a path");
  is_refused(with([](Archive& a, std::size_t) { a.add("x", std::string((1U << 20U) + 1, 'n'), 'L'); }),
             "1 MiB at most");
  Archive archive;
  archive.add("a.txt", "one");
  archive.put(tar_headers(std::string(120, 'n'), 0));
  archive.bytes.resize(archive.bytes.size() - 512);
  is_refused(archive.bytes, "no file behind it");
  archive.bytes.resize(1024 + 100);
  archive.bytes[1030] = 1;
  is_refused(archive.bytes, "ends within a header, at byte 1124");
}

TEST_CASE("tar: an archive that is cut within a file names it, and the byte at which the archive ends") {
  Archive archive;
  archive.add("a/1.jpg", "one");
  archive.add("a/2.jpg", std::string(700, 'x'));
  for (const std::size_t size : {1024 + 512 + 1, 1024 + 512 + 699}) {
    const Bytes cut(archive.bytes.begin(), archive.bytes.begin() + std::ptrdiff_t(size));
    is_refused(cut, "at 1024: the archive ends in the middle of \"a/2.jpg\", at byte " + std::to_string(size) +
                        " of 700 that begin at 1536");
  }
  archive.bytes.resize(1024 + 512 + 700);  // without what fills the last block, nothing is missing
  CHECK(names_in(archive.bytes).size() == 2);
}

TEST_CASE("tar: keys and extensions by WebDataset's rule") {
  const auto parts = [](std::string_view name) {
    const auto split = tar_name(name);
    return split ? std::string(split->key) + "|" + std::string(split->extension) : "";
  };
  CHECK(parts("000001.jpg") == "000001|jpg");
  CHECK(parts("a.b/c/000001.seg.png") == "a.b/c/000001|seg.png");
  CHECK(parts("./1.x") == "./1|x");
  for (const char* none : {"README", "a/.hidden", ".hidden.jpg", "a.b/c", "end.", "", "__meta.x__"})
    CHECK(parts(none).empty());
}

TEST_CASE("tar: an index finds samples, belongs to one version of an archive, and is not believed blindly") {
  const TemporaryFolder folder;
  Archive archive;
  archive.add("README", "no sample");
  archive.add("k1.jpg", "j1");
  archive.add("k1.CLS", "1");
  archive.add("k2.jpg", "j2");
  archive.put(tar_headers(std::string(110, 'k') + ".jpg", 2));
  archive.put("j3");
  const auto write = [&](const Bytes& bytes) {
    std::ofstream(folder.file("it.tar"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  };
  write(archive.end().bytes);
  {
    const TarFile file(folder.file("it.tar"));
    REQUIRE(file.size() == 3);
    CHECK(file.sample(0).key == "k1");
    CHECK(file.sample(0).parts.size() == 2);
    CHECK(file.sample(0).find("cls")->bytes[0] == '1');
    CHECK(file.sample(0).find("png") == nullptr);
    CHECK(file.sample(2).key == std::string(110, 'k'));
    CHECK_THROWS_AS(file.sample(3), std::out_of_range);
  }
  const std::string index = folder.file("it.tar.index");
  REQUIRE(std::filesystem::exists(index));
  const MappedFile mapped(folder.file("it.tar"), "tar archive");
  const TarPlaces places = find_tar_samples(mapped.bytes(), "it.tar");
  const Bytes stored = store_tar_index(places, mapped.stamp());
  CHECK(load_tar_index(stored, mapped.stamp()) == places);
  CHECK(!load_tar_index(stored, {mapped.stamp().bytes, mapped.stamp().modified + 1}));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    Bytes damaged = stored;
    damaged[i] ^= 1U;
    CHECK(!load_tar_index(damaged, mapped.stamp()));
  }
  CHECK(!load_tar_index(std::span(stored).first(stored.size() - 8), mapped.stamp()));
  // An index that is whole and wrong: places that are no sample's, or the wrong number of them.
  const auto by_index = [&](TarPlaces wrong, std::int64_t sample) {
    write_tar_index(index, store_tar_index(wrong, mapped.stamp()));
    return TarFile(folder.file("it.tar")).sample(sample).parts.size();
  };
  CHECK(by_index(places, 0) == 2);
  CHECK_THROWS_WITH(by_index({places[0], places.back()}, 0), ContainsSubstring("is of another sample"));
  CHECK_THROWS_WITH(by_index({places[0] + 512, places.back()}, 0), ContainsSubstring("no header of a tar archive"));
  CHECK_THROWS_WITH(by_index({0, places[0]}, 0), ContainsSubstring("a sample without files"));
  // Written anew: the index is made anew, though it is there.
  archive = {};
  archive.add("x.txt", "1");
  archive.add("x.txt", "2");
  write(archive.end().bytes);
  const TarFile anew(folder.file("it.tar"));
  CHECK(anew.size() == 1);
  CHECK_THROWS_WITH(anew.sample(0), ContainsSubstring("at 1024: \"x.txt\" is there twice"));
}

TEST_CASE("tar: what is no archive of samples is refused, with what to do") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    std::ofstream(folder.file("it.tar"), std::ios::binary) << bytes;
    CHECK_THROWS_WITH(TarFile(folder.file("it.tar")), ContainsSubstring("it.tar") && ContainsSubstring(what));
    CHECK(!std::filesystem::exists(folder.file("it.tar.index")));
  };
  refused("", "no tar archive: it is empty");
  refused("\x1f\x8b and so on", "compressed by gzip");
  refused("\x28\xb5\x2f\xfd", "compressed by zstd");
  refused(std::string(2000, 'x'), "at 0: no header");
  refused("short", "at 0: the archive ends within a header");
  refused(std::string(1024, '\0'), "no samples");
  CHECK_THROWS_WITH(TarFile(folder.file("none.tar")), ContainsSubstring("none.tar: can't be opened"));
}

TEST_CASE("tar: an index goes to a chosen folder, or to the cache where the archive's cannot be written") {
  const TemporaryFolder folder, other;
  Archive archive;
  archive.add("k1.jpg", "j1");
  std::ofstream(folder.file("it.tar"), std::ios::binary)
      .write(reinterpret_cast<const char*>(archive.bytes.data()), std::streamsize(archive.bytes.size()));
  CHECK(TarFile(folder.file("it.tar"), other.file("made")).size() == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(other.file("made")), {}) == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  std::filesystem::create_directory(folder.file("it.tar.index"));  // nothing can be written there
  ::setenv("XDG_CACHE_HOME", other.file("cache").c_str(), 1);
  CHECK(TarFile(folder.file("it.tar")).size() == 1);
  CHECK(std::distance(std::filesystem::directory_iterator(other.file("cache/shoal/tar")), {}) == 1);
  CHECK(TarFile(folder.file("it.tar")).size() == 1);
  std::filesystem::remove_all(other.file("cache"));
  std::ofstream(other.file("cache")) << "no folder";
  CHECK(TarFile(folder.file("it.tar")).size() == 1);  // kept in memory alone
  ::unsetenv("XDG_CACHE_HOME");
}
