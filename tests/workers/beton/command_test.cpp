// shoal beton: info, verify and cat.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/tar/tar_dataset.h>
#include <shoal/workers/tar/tar_writer.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/workers/beton/beton_vectors.h"

using namespace shoal;
using namespace shoal::test;

namespace {

ProgramResult beton(std::vector<std::string> words) {
  words.insert(words.begin(), {kShoal, "beton"});
  return run_program(words);
}

/// Two classes of three pictures each; one is a PNG.
std::string pictures(const TemporaryFolder& folder) {
  for (int i = 0; i < 6; ++i) {
    const auto path = folder.file("pictures/" + std::string(i < 3 ? "cat" : "dog") + "/" + std::to_string(i));
    if (i == 4)
      write_file(path + ".png", png_of(smooth_image(12, 16, i)));
    else
      write_file(path + ".jpg", jpeg_of(smooth_image(12, 16, i)));
  }
  return folder.file("pictures");
}

std::vector<nlohmann::json> rows_of(const std::string& path) {
  const ProgramResult result = beton({"cat", path, "--json"});
  CHECK(result.code == 0);
  std::istringstream lines(result.output);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) names.push_back(file.path().filename().native());
  std::ranges::sort(names);
  return names;
}

/// By one line and the code for bad values, and nothing is written into the folder.
void write_is_refused(const TemporaryFolder& out, std::vector<std::string> words, const std::string& what) {
  words.insert(words.begin(), "write");
  const ProgramResult result = beton(std::move(words));
  CAPTURE(what);
  CHECK(result.code == 4);
  CHECK_THAT(result.error, ContainsSubstring(what));
  CHECK(files_in(out.path()).empty());
}

}  // namespace

TEST_CASE("shoal beton: a writer that is killed when all is written leaves no half file, and the place what it had") {
  const TemporaryFolder folder, out;
  const std::string from = pictures(folder);
  const bool is_tar = GENERATE(false, true);
  const std::string to = out.file(is_tar ? "it.tar" : "it.beton");
  std::ofstream(to) << "what was there";
  const auto killed = run_program({kShoal, "beton", "write", from, to, "--quiet"}, [&] {
    ::setenv("SHOAL_KILL_AT", is_tar ? "tar.write.whole" : "beton.write.whole", 1);
  });
  CHECK(killed.code == -SIGKILL);
  const auto left = bytes_of_file(to);
  CHECK(std::string(left.begin(), left.end()) == "what was there");
  const auto files = files_in(out.path());
  REQUIRE(files.size() == 2);
  CHECK(files[0].starts_with(".shoal."));
  CHECK(files[0].ends_with(".part"));
  // Another one takes the place; what the dead one left is in nobody's way.
  CHECK(beton({"write", from, to, "--quiet"}).code == 0);
  CHECK(beton({"verify", to}).code == 0);
  CHECK(rows_of(to).size() == 6);
}

TEST_CASE("shoal beton: a folder becomes tar archives, these a .beton file, and that archives again") {
  const TemporaryFolder folder, out;
  const std::string from = pictures(folder);
  const auto write = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "write");
    words.emplace_back("--quiet");
    const ProgramResult result = beton(words);
    CHECK(result.error.empty());
    return result.code;
  };
  REQUIRE(write({from, out.file("s-%02d.tar"), "--shard-samples", "4"}) == 0);
  CHECK(files_in(out.path()) == std::vector<std::string>{"s-00.tar", "s-00.tar.index", "s-01.tar", "s-01.tar.index"});
  const auto first = rows_of(out.file("s-00.tar")), second = rows_of(out.file("s-01.tar"));
  REQUIRE(first.size() == 4);
  REQUIRE(second.size() == 2);
  CHECK(first[1]["key"] == "000001");
  CHECK(first[3]["fields"]["cls"] == 1);
  CHECK(first[3]["fields"]["jpg"]["width"] == 16);
  CHECK(second[0]["fields"].contains("png"));
  CHECK(beton({"verify", out.file("s-00.tar")}).output == out.file("s-00.tar") + ": 4 samples: no fault\n");
  const ProgramResult info = beton({"info", out.file("s-01.tar")});
  CHECK_THAT(info.output, ContainsSubstring("s-01.tar: 2 samples") &&
                              ContainsSubstring("  cls               2 files; 1 to 1 bytes"));
  // The archives' files are the fields; a sample without one of them ends the writing, and --field says what may be it.
  CHECK_THAT(beton({"write", out.file("s-*.tar"), out.file("it.beton"), "--quiet"}).error,
             ContainsSubstring("000004: no file for the member \"jpg\"") && ContainsSubstring("--field image=jpg,png"));
  const std::vector<std::string> of_both = {"--field", "image=jpg,png", "--field", "label=cls"};
  const auto write_both = [&](std::string from, const std::string& to) {
    std::vector<std::string> words = of_both;
    words.insert(words.end(), {std::move(from), to});
    REQUIRE(write(std::move(words)) == 0);
  };
  write_both(out.file("s-*.tar"), out.file("both.beton"));
  write_both(out.file("s-*.tar"), out.file("both.tar"));
  const auto both = rows_of(out.file("both.beton")), files = rows_of(out.file("both.tar"));
  REQUIRE(both.size() == 6);
  REQUIRE(files.size() == 6);
  CHECK(both[1]["fields"]["image"] == first[1]["fields"]["jpg"]);
  CHECK(both[4]["fields"]["label"] == 1);
  CHECK(files[1]["fields"] == first[1]["fields"]);
  CHECK(files[4]["fields"] == second[0]["fields"]);
  const TemporaryFolder none;
  write_is_refused(none, {from, none.file("it.beton"), "--field", "image=jpg"}, "--field is given for '" + from + "'");
  for (const char* field : {"image", "image=", "=jpg", "image=jpg,", "image=.jpg"})
    write_is_refused(none, {out.file("s-*.tar"), none.file("it.beton"), "--field", field},
                     "--field is '" + std::string(field) + "': give NAME=EXTENSION");
  REQUIRE(write({out.file("s-00.tar"), out.file("it.beton")}) == 0);
  const auto rows = rows_of(out.file("it.beton"));
  REQUIRE(rows.size() == 4);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i]["fields"]["jpg"] == first[i]["fields"]["jpg"]);
    CHECK(rows[i]["fields"]["cls"] == first[i]["fields"]["cls"]);
  }
  REQUIRE(write({out.file("it.beton"), out.file("again.tar")}) == 0);
  const auto again = rows_of(out.file("again.tar"));
  REQUIRE(again.size() == 4);
  CHECK(again[2]["fields"]["jpg.jpg"] == first[2]["fields"]["jpg"]);
  CHECK(again[2]["fields"]["cls.cls"] == first[2]["fields"]["cls"]);
  CHECK(beton({"write", out.file("s-{00..01}.tar"), out.file("new.tar"), "--quiet"}).code == 1);
}

TEST_CASE("shoal beton: info, verify and cat take several archives, and patterns of them, as write does") {
  const TemporaryFolder folder, out;
  REQUIRE(beton({"write", pictures(folder), out.file("s-%02d.tar"), "--shard-samples", "4", "--quiet"}).code == 0);
  const std::string first = out.file("s-00.tar"), second = out.file("s-01.tar"), pattern = out.file("s-{00..01}.tar");
  const std::string both = "2 archives, " + first + " to " + second + ": 6 samples";
  for (const auto& names : {std::vector{pattern}, std::vector{out.file("s-*.tar")}, std::vector{first, second}}) {
    const auto on = [&](const char* command) {
      std::vector<std::string> words = {command};
      words.insert(words.end(), names.begin(), names.end());
      return words;
    };
    const ProgramResult info = beton(on("info"));
    CHECK_THAT(info.output, StartsWith(both) && ContainsSubstring("  cls               6 files; 1 to 1 bytes") &&
                                ContainsSubstring("  png               1 files"));
    CHECK(beton(on("verify")).output == both + ": no fault\n");
    auto some = on("cat");
    some.insert(some.end(), {"--first", "3", "--count", "2"});
    const ProgramResult lines = beton(some);
    CHECK_THAT(lines.output, StartsWith("3  000003  ") && ContainsSubstring("\n4  000004  "));
    CHECK(std::count(lines.output.begin(), lines.output.end(), '\n') == 2);
  }
  // One that is not there is one fault, and the others are looked at.
  write_file(second, {'n', 'o'});
  const ProgramResult bad = beton({"verify", pattern, out.file("none.tar")});
  CHECK(bad.code == 1);
  CHECK_THAT(bad.error, ContainsSubstring("s-01.tar: ") && ContainsSubstring("none.tar: can't be opened"));
  const std::string file = write_beton(folder, "all", beton_vector("all"));
  for (const auto& names : {std::pair(file, first), std::pair(first, file), std::pair(file, file)}) {
    const ProgramResult mixed = beton({"info", names.first, names.second});
    CHECK(mixed.code == 4);
    CHECK_THAT(mixed.error, ContainsSubstring("'" + file + "' and others: only tar archives can be several"));
  }
  CHECK_THAT(beton({"info", out.file("t-*.tar")}).error, ContainsSubstring("no file has such a name"));
}

TEST_CASE("shoal beton: verify says of each kind of picture in an archive that it has no end") {
  const TemporaryFolder folder;
  const auto png = png_of(smooth_image(5, 7)), jpeg = jpeg_of(smooth_image(8, 8));
  const auto archive = [&](std::size_t left_out) {  // of a PNG its last chunk has 12 bytes, of a JPEG the marker 2
    TarWriter tar(folder.file("it.tar"));
    tar.add("a", std::vector<TarContents>{{"png", std::span(png).first(png.size() - 6 * left_out)}});
    tar.add("b", std::vector<TarContents>{{"jpg", std::span(jpeg).first(jpeg.size() - left_out)}});
    tar.close();
    return beton({"verify", folder.file("it.tar")});
  };
  CHECK(archive(0).code == 0);
  const ProgramResult cut = archive(2);
  CHECK(cut.code == 1);
  CHECK_THAT(cut.error, ContainsSubstring("it.tar: a.png: this picture has all its pixels and no end mark") &&
                            ContainsSubstring("it.tar: b.jpg: this picture has all its pixels and no end mark"));
  const std::string one = beton({"verify", folder.file("it.tar"), "--most", "1"}).error;
  CHECK_THAT(one, ContainsSubstring("a.png: this") && !ContainsSubstring("b.jpg: this"));
  CHECK(beton({"verify", "--quick", folder.file("it.tar")}).code == 0);
  CHECK(rows_of(folder.file("it.tar"))[0]["fields"]["png"]["width"] == 7);  // readers pass over it
}

TEST_CASE("shoal beton: verify says what is wrong with a tar archive") {
  const TemporaryFolder folder, out;
  REQUIRE(beton({"write", pictures(folder), out.file("it.tar"), "--quiet"}).code == 0);
  CHECK_THAT(beton({"cat", out.file("it.tar"), "--first", "99"}).error, ContainsSubstring("--first is 99"));
  auto bytes = bytes_of_file(out.file("it.tar"));
  const auto at = std::search(bytes.begin(), bytes.end(), std::begin("000002.jpg"), std::end("000002.jpg") - 1);
  REQUIRE(at != bytes.end());
  at[512] = 0;  // no JPEG begins so
  write_file(out.file("it.tar"), bytes);
  const ProgramResult damaged = beton({"verify", out.file("it.tar")});
  CHECK(damaged.code == 1);
  CHECK_THAT(damaged.error, ContainsSubstring("000002.jpg"));
  CHECK(beton({"verify", "--quick", out.file("it.tar")}).code == 0);
  bytes.resize(bytes.size() - 10240);
  bytes.resize(bytes.size() / 512 * 512);
  write_file(out.file("it.tar"), bytes);
  CHECK_THAT(beton({"verify", "--quick", out.file("it.tar")}).error, ContainsSubstring("cut off"));
  write_file(out.file("packed.tar"), {0x1f, 0x8b, 8, 0});
  for (const char* name : {"packed.tar", "packed.tar.gz", "packed.tgz", "packed.beton.gz"}) {
    write_file(out.file(name), {0x1f, 0x8b, 8, 0});
    for (const char* command : {"info", "verify", "cat"})
      CHECK_THAT(beton({command, out.file(name)}).error,
                 ContainsSubstring("compressed by gzip") && ContainsSubstring("gunzip it"));
  }
}

TEST_CASE("shoal beton: cat --json prints a line a sample, with hashes of what is no number") {
  const TemporaryFolder folder;
  const std::string path = write_beton(folder, "all", beton_vector("all"));
  const ProgramResult result = beton({"cat", path, "--json"});
  REQUIRE(result.code == 0);
  std::istringstream lines(result.output);
  std::int64_t row = 0;
  for (std::string line; std::getline(lines, line); ++row) {
    const auto sample = nlohmann::json::parse(line);
    CHECK(sample["index"] == row);
    const auto& fields = sample["fields"];
    CHECK(fields.size() == 6);
    CHECK(fields["label"] == 11 * row - 3);
    CHECK(fields["score"] == double(row) / 2);
    CHECK(fields["image"]["mode"] == "raw");
    CHECK(fields["image"]["width"] == 5);
    CHECK(fields["image"]["height"] == 4 + row);
    CHECK(fields["vec"]["shape"] == nlohmann::json({2, 3}));
    CHECK(fields["vec"]["dtype"] == "<f4");
    CHECK(fields["blob"]["shape"] == nlohmann::json(std::vector<std::int64_t>{3 * row}));
    CHECK(fields["a_very_long_fiel"]["k"] == row);
    CHECK(fields["a_very_long_fiel"]["s"] == "\u00e9\"x");
    // sha256sum's of nothing, and of three 'B'.
    if (row == 0) CHECK(fields["blob"]["sha256"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    if (row == 1) CHECK(fields["blob"]["sha256"] == "dcdb704109a454784b81229d2b05f368692e758bfa33cb61d04c1b93791b0273");
  }
  CHECK(row == 5);
  CHECK(beton({"cat", path, "--first", "3", "--count", "1"}).output.starts_with("3  image="));
}

TEST_CASE("shoal beton: the pixels of a JPEG by FFCV's writer are those of FFCV's decoder") {
  const TemporaryFolder folder;
  const ProgramResult result = beton({"cat", write_beton(folder, "jpeg", beton_vector("jpeg")), "--json"});
  REQUIRE(result.code == 0);
  std::istringstream lines(result.output);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line)["fields"]);
  REQUIRE(rows.size() == 20);
  CHECK(rows[0]["image"]["mode"] == "jpg");
  CHECK(rows[0]["image"]["sha256"] == "9fe7677338e4fc9b3cb9ba0570546aabf7aa46f0e11965456c407174bdfabd03");
  CHECK(rows[7]["image"]["width"] == 33);
  CHECK(rows[7]["image"]["sha256"] == "55724bc4673c1abf02235ec3e3a291f8ff2bb64b978f401de5c40ad68bf62709");
  CHECK(rows[7]["words"]["dtype"] == "<i2");
}

TEST_CASE("shoal beton: info says fields, sizes, counts and pages, with a histogram of sizes that differ") {
  const TemporaryFolder folder;
  const ProgramResult result = beton({"info", write_beton(folder, "pages", beton_vector("pages"))});
  CHECK(result.code == 0);
  for (const char* text :
       {"3 samples, 2 fields, 8.0 MiB", "3 used, 6 regions; 1 to 1 samples a page",
        "  a                 bytes; 500 B to 1.0 MiB", "sizes of a, and how many values have them:", "########"})
    CHECK_THAT(result.output, ContainsSubstring(text));
}

TEST_CASE("shoal beton: verify says what is wrong, and where") {
  const TemporaryFolder folder;
  auto bytes = beton_vector("all");
  const ProgramResult good = beton({"verify", write_beton(folder, "all", bytes)});
  CHECK(good.code == 0);
  CHECK_THAT(good.output, ContainsSubstring("5 samples, 20 regions: no fault"));
  const std::size_t meta = 24 + 6 * 1041;
  shoal::detail::store64(bytes.data() + meta + 72 + 5, 77);               // sample 1's picture
  bytes[shoal::detail::load64(bytes.data() + meta + 2 * 72 + 56)] = '}';  // sample 2's JSON
  shoal::detail::store64(bytes.data() + bytes.size() - 16,
                         shoal::detail::load64(bytes.data() + bytes.size() - 40));  // the last region
  const ProgramResult bad = beton({"verify", write_beton(folder, "bad", bytes)});
  CHECK(bad.code == 1);
  for (const char* text : {"sample 1, field \"image\": 75 bytes at 77",
                           "sample 2, field \"a_very_long_fiel\": the text is no JSON", "overlap"})
    CHECK_THAT(bad.error, ContainsSubstring(text));
  CHECK(bad.output.empty());
}

TEST_CASE("shoal beton: verify notices that the allocation table is cut short, of whose length the file says nothing") {
  const TemporaryFolder folder;
  auto bytes = beton_vector("all");
  bytes.resize(bytes.size() - 2 * shoal::detail::kBetonRegionBytes);
  const ProgramResult cut = beton({"verify", write_beton(folder, "cut", bytes)});
  CHECK(cut.code == 1);
  CHECK_THAT(cut.error, ContainsSubstring("cut.beton: the allocation table has 18 of 20 regions"));
}

TEST_CASE("shoal beton: pictures and arrays in tar archives are printed as those in .beton files") {
  struct Row {
    at::Tensor image, photo, depth;
    std::int64_t label;
  };
  struct Rows {
    std::int64_t size() const { return 3; }
    Row get(std::int64_t i) const {
      return {smooth_image(5, 7 + i, int(i)), smooth_image(8, 8, int(i)), at::arange(6, at::kFloat).view({2, 3}) + i,
              i};
    }
  };
  const TemporaryFolder folder;
  BetonWriter(folder.file("it.beton")).write(Rows{});
  TarWriter(folder.file("it.tar"), {.extensions = {{"image", "png"}, {"photo", "photo.png"}, {"depth", "npy"}}})
      .write(Rows{});
  const auto archived = rows_of(folder.file("it.tar")), stored = rows_of(folder.file("it.beton"));
  REQUIRE(archived.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& tar = archived[i]["fields"];
    const auto& beton = stored[i]["fields"];
    CHECK(tar["npy"] == beton["depth"]);
    CHECK(beton["image"]["mode"] == "raw");
    for (const auto& [extension, name] : {std::pair("png", "image"), std::pair("photo.png", "photo")}) {
      CHECK(tar[extension].size() == 4);
      CHECK(tar[extension]["mode"] == "png");
      for (const char* what : {"width", "height", "sha256"}) CHECK(tar[extension][what] == beton[name][what]);
    }
  }
  // Pictures are what their bytes are, as for readers, and verify decodes each kind.
  TarWriter mixed(folder.file("mixed.tar"));
  const auto png = png_of(smooth_image(5, 7), PngKind::palette);
  mixed.add("a", std::vector<TarContents>{{"jpg", png}});
  mixed.add("b", std::vector<TarContents>{{"png", std::span(png).first(png.size() / 2)}});
  mixed.close();
  const ProgramResult line = beton({"cat", folder.file("mixed.tar"), "--json", "--count", "1"});
  CHECK(nlohmann::json::parse(line.output)["fields"]["jpg"]["mode"] == "png");
  CHECK_THAT(beton({"verify", folder.file("mixed.tar")}).error,
             ContainsSubstring("mixed.tar: b.png: this PNG can't be decoded") && !ContainsSubstring("a.jpg"));
  CHECK(beton({"verify", "--quick", folder.file("mixed.tar")}).code == 0);
  const TarFile archive(folder.file("it.tar"));
  const TarParts sample = archive.sample(0);
  const auto whole = sample.find("npy")->bytes;
  TarWriter arrays(folder.file("arrays.tar"));
  arrays.add("whole", std::vector<TarContents>{{"npy", whole}});
  arrays.add("short", std::vector<TarContents>{{"npy", whole.first(whole.size() - 4)}});
  arrays.close();
  CHECK_THAT(beton({"verify", folder.file("arrays.tar")}).error,
             ContainsSubstring(R"(short.npy: 20 bytes of elements, which is not what (2, 3) of "<f4" has)") &&
                 !ContainsSubstring("whole"));
}

TEST_CASE("shoal beton: write's help says what becomes of pictures, and what of an earlier run's archives") {
  const ProgramResult help = beton({"write", "--help"});
  CHECK(help.code == 0);
  for (const char* text : {"proportion (jpg)", "JPEGs stay", "--re-encode", "--replace"})
    CHECK_THAT(help.output, ContainsSubstring(text));
}

TEST_CASE("shoal beton: options of archives are refused for a .beton file, and the other way round") {
  const TemporaryFolder folder, out;
  const std::string from = pictures(folder);
  const auto is_refused = [&](const char* name, const std::vector<std::string>& option) {
    std::vector<std::string> words = {"write", from, out.file(name)};
    words.insert(words.end(), option.begin(), option.end());
    const ProgramResult result = beton(words);
    CHECK(result.code == 4);
    CHECK_THAT(result.error, ContainsSubstring(option.front() + " is given for '" + out.file(name) + "'"));
  };
  is_refused("it.tar", {"--mode", "raw"});
  is_refused("it.tar", {"--max-resolution", "8"});
  is_refused("it.tar", {"--page-size", "2"});
  is_refused("it.beton", {"--shard-samples", "2"});
  is_refused("it.beton", {"--replace"});
  CHECK(files_in(out.path()).empty());
}

TEST_CASE("shoal beton: names that do not say what is written, and those of several numbers, are refused") {
  const TemporaryFolder folder, out;
  const std::string from = pictures(folder);
  for (const char* name : {"it.tar.gz", "it.tgz", "it", "it.tar.zst"})
    write_is_refused(out, {from, out.file(name)},
                     "'" + out.file(name) + "' cannot be written: name a .beton file, or archives .tar");
  for (const char* name : {"o-{000..002}.tar", "o-*.tar", "o-?.beton"})
    write_is_refused(out, {from, out.file(name)}, "is a pattern, which names what is read");
  for (const char* name : {"o-%d-%d.tar", "o-%02d-%03d.tar"})
    write_is_refused(out, {from, out.file(name), "--shard-samples", "2"}, "more than one place for a number");
  write_file(folder.file("it.tar.gz"), {0x1f, 0x8b, 8, 0});
  write_is_refused(out, {folder.file("it.tar.gz"), out.file("it.beton")}, "compressed by gzip");
  write_file(folder.file("it.tar.zst"), {0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0});
  write_is_refused(out, {folder.file("it.tar.zst"), out.file("it.beton")}, "compressed by zstd");
}

TEST_CASE("shoal beton: an archive that is there is not replaced by what others have, unless that is asked for") {
  const TemporaryFolder folder, out;
  for (const char* name : {"a/0.jpg", "b/1.jpg"}) write_file(folder.file(name), jpeg_of(smooth_image(5, 7)));
  const std::string from = folder.path();
  for (const char* name : {"0.tar", "1.tar", "2.tar"})
    REQUIRE(beton({"write", from, out.file(name), "--quiet"}).code == 0);
  const auto before = rows_of(out.file("2.tar"));
  // As a shell writes out 'write *.tar', with the target forgotten.
  const ProgramResult forgotten = beton({"write", out.file("0.tar"), out.file("1.tar"), out.file("2.tar"), "--quiet"});
  CHECK(forgotten.code == 4);
  CHECK_THAT(forgotten.error, ContainsSubstring("2.tar' is there already") && ContainsSubstring("--replace"));
  CHECK(rows_of(out.file("2.tar")) == before);
  CHECK(beton({"write", out.file("0.tar"), out.file("1.tar"), out.file("2.tar"), "--replace", "--quiet"}).code == 0);
  CHECK(rows_of(out.file("2.tar")).size() == 2 * before.size());
  REQUIRE(beton({"write", from, out.file("it.beton"), "--quiet"}).code == 0);
  const ProgramResult mixed =
      beton({"write", out.file("0.tar"), out.file("it.beton"), out.file("new.beton"), "--quiet"});
  CHECK(mixed.code == 4);
  CHECK_THAT(mixed.error, ContainsSubstring("it.beton' is given among tar archives"));
}

TEST_CASE("shoal beton: values that options cannot have are refused by the option's name") {
  const TemporaryFolder folder, out;
  const std::string from = pictures(folder);
  const auto is_bad = [&](const char* option, const char* value, const char* remedy, const char* to = "it.beton") {
    write_is_refused(out, {from, out.file(to), option, value},
                     std::string(option) + " is " + value + ": give " + remedy);
  };
  is_bad("--quality", "0", "1 to 100");
  is_bad("--page-size", "3", "a power of two");
  is_bad("--page-size", "4096", "a power of two");
  is_bad("--max-resolution", "-1", "at least 0");
  is_bad("--probability", "1.5", "0 to 1");
  is_bad("--workers", "-1", "at least 0");
  is_bad("--chunk-size", "0", "at least 1");
  is_bad("--shard-samples", "-1", "at least 0", "it.tar");
}

TEST_CASE("shoal beton: a writer that is asked to stop ends by the signal, and leaves nothing") {
  const TemporaryFolder folder, out;
  write_file(folder.file("pictures/a/0.jpg"), jpeg_of(smooth_image(200, 300)));
  for (int i = 1; i < 3000; ++i)
    std::filesystem::create_symlink("0.jpg", folder.file("pictures/a/" + std::to_string(i) + ".jpg"));
  const auto [is_tar, workers, number] =
      GENERATE(std::tuple(false, "0", SIGINT), std::tuple(false, "1", SIGTERM), std::tuple(true, "1", SIGINT));
  const std::string to = out.file(is_tar ? "it-%d.tar" : "it.beton");
  std::vector<std::string> words = {kShoal,      "beton", "write",   folder.file("pictures"), to,
                                    "--workers", workers, "--quiet", "--chunk-size",          "1"};
  if (!is_tar) words.emplace_back("--re-encode");
  // Messages wait a while, so that it is at work when the signal comes; without workers the encoding takes as long.
  RunningProgram writer(words, [] { ::setenv("SHOAL_DELAY_AT", "ring.put.claimed:20000:1", 1); });
  while (files_in(out.path()).empty()) ::usleep(1000);
  ::kill(number == SIGINT ? -writer.pid() : writer.pid(), number);  // Ctrl-C goes to all of a terminal's processes
  CHECK(writer.finish().code == -number);
  CHECK(files_in(out.path()).empty());
}

TEST_CASE("shoal beton: write says how far it is, with a rate and bytes, unless it is to be quiet") {
  const TemporaryFolder folder, out;
  const ProgramResult told = beton({"write", pictures(folder), out.file("it.beton"), "--mode", "raw"});
  REQUIRE(told.code == 0);
  CHECK_THAT(told.error, StartsWith("it.beton ") && ContainsSubstring("100%") && ContainsSubstring("samples/s") &&
                             ContainsSubstring("MiB/s"));
  CHECK(beton({"write", folder.file("pictures"), out.file("it.beton"), "--quiet"}).error.empty());
}

TEST_CASE("shoal beton: archives of an earlier run are refused, and replaced if asked to") {
  const TemporaryFolder folder, out;
  const std::string from = pictures(folder), to = out.file("s-%02d.tar");
  REQUIRE(beton({"write", from, to, "--shard-samples", "2", "--quiet"}).code == 0);
  REQUIRE(files_in(out.path()).size() == 6);
  const ProgramResult refused = beton({"write", from, to, "--shard-samples", "4", "--quiet"});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.error, ContainsSubstring("3 archives") && ContainsSubstring("--replace"));
  const ProgramResult replaced = beton({"write", from, to, "--shard-samples", "4", "--quiet", "--replace"});
  CHECK(replaced.code == 0);
  CHECK_THAT(replaced.error, ContainsSubstring("removed the archive " + out.file("s-02.tar")));
  CHECK(files_in(out.path()) == std::vector<std::string>{"s-00.tar", "s-00.tar.index", "s-01.tar", "s-01.tar.index"});
}

TEST_CASE("shoal beton: wrong words are one line and a code of their own") {
  const TemporaryFolder folder;
  const auto is_refused = [](const ProgramResult& result, int code, const std::string& what) {
    CHECK(result.code == code);
    CHECK_THAT(result.error, ContainsSubstring(what));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
  };
  is_refused(beton({}), 2, "write, info, verify or cat?");
  is_refused(beton({"look"}), 2, "look");
  is_refused(beton({"info"}), 2, "FILE");
  is_refused(beton({"info", folder.file("none")}), 1, "none: can't be opened");
  is_refused(beton({"cat", write_beton(folder, "all", beton_vector("all")), "--first", "6"}), 4,
             "--first is 6: the file has 5 samples");
  is_refused(beton({"cat", folder.file("all.beton"), "--custom", "x"}), 4, "--custom is 'x'");
  is_refused(beton({"cat", folder.file("all.beton"), "--custom", "nothing=4"}), 4,
             "\"nothing\", which is no custom field");
  for (const char* most : {"0", "-1"})
    is_refused(beton({"verify", folder.file("all.beton"), "--most", most}), 4, fmt::format("--most is {}", most));
  is_refused(beton({"cat", folder.file("all.beton"), "--count", "-3"}), 4, "--count is -3: give at least 0");
  CHECK(beton({"cat", folder.file("all.beton"), "--count", "0"}).output.empty());
  CHECK(beton({"cat", "--help"}).code == 0);
  CHECK(beton({"--help"}).code == 0);
}

TEST_CASE("shoal beton: output that is lost is a failure") {
  const TemporaryFolder folder;
  const std::string path = write_beton(folder, "all", beton_vector("all"));
  for (const char* command : {"info", "verify", "cat"}) {
    const ProgramResult lost =
        run_program({"/bin/sh", "-c", R"("$0" beton "$1" "$2" > /dev/full)", kShoal, command, path});
    CHECK(lost.code == 1);
    CHECK_THAT(lost.error, ContainsSubstring("writing to standard output"));
  }
}

TEST_CASE("shoal beton: an array of bytes that could be a picture stays an array, from one format to the other") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& from, const std::string& to) {
    const ProgramResult result = beton({"write", folder.file(from), folder.file(to), "--quiet"});
    CHECK(result.error.empty());
    REQUIRE(result.code == 0);
  };
  struct Maps {
    std::int64_t size() const { return 3; }
    std::pair<at::Tensor, std::int64_t> get(std::int64_t i) const {
      return {at::arange(60, at::kByte).view({3, 4, 5}) + i, i};
    }
  };
  BetonWriter(folder.file("a.beton"), {.names = {"map", "label"}, .fields = {{"map", {.type = BetonType::ndarray}}}})
      .write(Maps());
  write("a.beton", "b.beton");
  write("b.beton", "c.tar");
  write("c.tar", "d.tar");
  write("d.tar", "e.beton");
  const at::Tensor second = Maps().get(1).first;
  const auto same = [&](std::span<const std::uint8_t> bytes) {
    return std::ranges::equal(bytes, std::span(second.const_data_ptr<std::uint8_t>(), 60));
  };
  const BetonFile copy(folder.file("b.beton")), back(folder.file("e.beton"));
  CHECK(copy.fields()[0].type == BetonType::ndarray);
  CHECK(same(copy.array(1, 0)));
  CHECK(back.fields()[0].type == BetonType::tensor);
  CHECK(same(back.array(1, 0)));
  CHECK(tar_dataset(folder.file("d.tar")).get(1).at("map.npy").equal(second));
}
