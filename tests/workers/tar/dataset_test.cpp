// TarDataset, TarStream and TarWriter: the same samples with any number of workers and ranks, also after a stop; and
// Python's tarfile as the other writer and reader.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/internal/workers/tar/make/npy.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_sampler.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <shoal/workers/images/decode.h>
#include <shoal/workers/tar/tar_stream.h>
#include <shoal/workers/tar/tar_writer.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/source_tree.h"
#include "tests/workers/beton/beton_vectors.h"
#include "tests/workers/tar/rows.h"

using namespace shoal;
using namespace shoal::test;
namespace fs = std::filesystem;

namespace {

struct Number {
  std::int64_t label;
  at::Tensor filling;
};
struct Numbers {
  std::int64_t count;
  std::int64_t size() const { return count; }
  Number get(std::int64_t i) const { return {i, at::full({50}, i % 251, at::kByte)}; }
};

/// Archives of at most ten samples.
TarDataset<Number> numbers(const TemporaryFolder& folder, std::int64_t count = 64) {
  TarWriter writer(folder.file("n-%03d.tar"), {.shard_samples = 10});
  writer.write(Numbers{count});
  return tar_dataset<Number>(std::span<const fs::path>(writer.archives()));
}

std::vector<std::int64_t> labels_of(auto& loader) {
  std::vector<std::int64_t> labels;
  for (auto& batch : loader)
    for (std::int64_t i = 0; i < batch.label.size(0); ++i) {
      labels.push_back(batch.label[i].template item<std::int64_t>());
      CHECK(batch.filling[i][17].template item<std::int64_t>() == labels.back() % 251);
    }
  return labels;
}

struct NumberBatch {
  at::Tensor label, filling;
};
NumberBatch collate_numbers(std::vector<Number> samples) {
  std::vector<at::Tensor> fillings;
  std::vector<std::int64_t> labels;
  for (Number& sample : samples) {
    labels.push_back(sample.label);
    fillings.push_back(sample.filling);
  }
  return {at::tensor(labels), at::stack(fillings)};
}

template <class D>
concept GivesParts = requires(D&& dataset) { std::forward<D>(dataset).parts(0); };
static_assert(GivesParts<TarDataset<>&> && GivesParts<const TarDataset<Number>&>);
static_assert(!GivesParts<TarDataset<>>, "they would refer to nothing");

std::vector<std::int64_t> counted(std::int64_t to) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < to; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace

TEST_CASE("tar dataset: every type of member comes back as it was written") {
  const TemporaryFolder folder;
  TarWriter(folder.file("it.tar")).write(Rows{10});
  struct Read {
    std::string key;
    at::Tensor image;
    std::int16_t label;
    float score;
    std::string words;
    BetonJson meta;
    at::Tensor vec;
    std::optional<std::int64_t> missing;
  };
  const auto dataset = tar_dataset<Read>(folder.file("it.tar"), {.extensions = {{"score", {"nothing", "score.txt"}}}});
  REQUIRE(dataset.size() == 10);
  for (std::int64_t i = 0; i < 10; ++i) {
    const Read read = dataset.get(i);
    const Row row = Rows{10}.get(i);
    CHECK(read.key == fmt::format("{:06}", i));
    CHECK(at::equal(read.image, row.image));
    CHECK(read.label == row.label);
    CHECK(read.score == float(row.score));
    CHECK(read.words == row.words);
    CHECK(read.meta == row.meta);
    CHECK(at::equal(read.vec, row.vec));
    CHECK(!read.missing);
  }
  CHECK_THROWS_AS(dataset.get(10), std::out_of_range);
  const TarTensors all = tar_dataset(folder.file("it.tar")).get(3);
  CHECK(all.size() == 6);
  CHECK(all.at("label.cls").item<std::int64_t>() == 5);
  CHECK(at::equal(all.at("vec.npy"), Rows{10}.get(3).vec));
  CHECK(all.at("meta.json").size(0) == 8);
  struct Wrong {
    std::int8_t words;
    std::int64_t absent;
  };
  struct Absent {
    std::int64_t absent;
  };
  CHECK_THROWS_WITH(tar_dataset<Wrong>(folder.file("it.tar")).get(2),
                    EndsWith("it.tar: 000002.words.bin: \"--words 2\" is no integer"));
  CHECK_THROWS_WITH(tar_dataset<Absent>(folder.file("it.tar")).get(2),
                    ContainsSubstring("it.tar: 000002: no file for the member \"absent\" among"));
}

TEST_CASE(
    "tar dataset: members whose names have capitals have their files, whose extensions readers see in small letters") {
  struct Row {
    at::Tensor imageA;
    std::int64_t classId;
  };
  struct Rows {
    std::int64_t size() const { return 3; }
    Row get(std::int64_t i) const { return {at::full({3, 2, 2}, i, at::kByte), i + 5}; }
  };
  struct Optional {
    std::optional<std::int64_t> classId;
    std::optional<at::Tensor> chosen;
  };
  const TemporaryFolder folder;
  TarWriter(folder.file("it.tar")).write(Rows{});
  const Row row = tar_dataset<Row>(folder.file("it.tar")).get(1);
  CHECK(row.classId == 6);
  CHECK(at::equal(row.imageA, Rows{}.get(1).imageA));
  const auto dataset = tar_dataset<Optional>(folder.file("it.tar"), {.extensions = {{"chosen", {"imageA.PNG"}}}});
  CHECK(dataset.get(2).classId == 7);
  CHECK(dataset.get(2).chosen.has_value());
  CHECK(dataset.parts(2).find("classId.cls") != nullptr);
}

TEST_CASE("tar archives: a file is found by its own name, whatever is in it, and all braces of a pattern count") {
  const TemporaryFolder folder;
  fs::create_directory(folder.file("run[1]"));
  for (const char* name : {"run[1]/a.tar", "a{0..1}.tar"}) {
    TarWriter(folder.file(name)).write(Numbers{2});
    CHECK(tar_archives(folder.file(name)) == std::vector<fs::path>{folder.file(name)});
    CHECK(tar_dataset(folder.file(name)).size() == 2);
  }
  CHECK(tar_archives("{x}-{00..01}-{9..10}.tar") ==
        std::vector<fs::path>{"{x}-00-9.tar", "{x}-00-10.tar", "{x}-01-9.tar", "{x}-01-10.tar"});
  CHECK_THROWS_WITH(tar_archives("{0..1}-{2..1}.tar"), ContainsSubstring("{2..1} does not count up"));
  CHECK_THROWS_WITH(tar_archives("{0..9999}-{0..9999}.tar"), ContainsSubstring("more than 10000000 archives"));
}

TEST_CASE("tar writer: limits of archives, the same bytes each time, and an index that readers take") {
  const TemporaryFolder folder;
  TarWriter writer(folder.file("n-%03d.tar"), {.shard_samples = 10});
  writer.write(Numbers{25});
  REQUIRE(writer.archives().size() == 3);
  CHECK(writer.archives()[2].filename() == "n-002.tar");
  const auto index = bytes_of_file(folder.file("n-001.tar.index"));
  const auto bytes = bytes_of_file(folder.file("n-001.tar"));
  CHECK(TarFile(folder.file("n-001.tar")).size() == 10);
  CHECK(bytes_of_file(folder.file("n-001.tar.index")) == index);
  fs::remove(folder.file("n-001.tar.index"));
  CHECK(TarFile(folder.file("n-001.tar")).size() == 10);
  CHECK(bytes_of_file(folder.file("n-001.tar.index")) == index);
  TarWriter(folder.file("n-%03d.tar"), {.shard_samples = 10, .index = false, .replace = true}).write(Numbers{25});
  CHECK(bytes_of_file(folder.file("n-001.tar")) == bytes);
  TarWriter small(folder.file("s-%d.tar"), {.shard_bytes = 10240});  // a sample takes 2048, the end 1024
  small.write(Numbers{9});
  CHECK(small.archives().size() == 3);
  CHECK(tar_dataset(folder.file("s-*.tar")).size() == 9);
  CHECK(tar_dataset(folder.file("n-{000..001}.tar")).size() == 20);
  CHECK_THROWS_WITH(tar_dataset(folder.file("n-{005..001}.tar")), ContainsSubstring("does not count up"));
  CHECK_THROWS_WITH(tar_dataset(folder.file("x-*.tar")), ContainsSubstring("no file has such a name"));
}

TEST_CASE("tar writer: what readers would misunderstand is refused, and what is not closed leaves nothing") {
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> one = {1};
  {
    TarWriter writer(folder.file("it.tar"));
    const auto refused = [&](std::string_view key, std::vector<TarContents> files, const std::string& what) {
      CHECK_THROWS_WITH(writer.add(key, files), ContainsSubstring(what));
    };
    refused("a", {}, "no files");
    refused("a.b", {{"x", one}}, "\"x\" as its extension");
    refused("a", {{"", one}}, "\"\" as its extension");
    refused("a", {{"x/y", one}}, "\"x/y\" as its extension");
    refused("a/", {{"x", one}}, "\"x\" as its extension");
    refused("a", {{"x", one}, {"x", one}}, "two files \"x\"");
    CHECK_THROWS_WITH(writer.close(), ContainsSubstring("no samples"));
    writer.add("a", std::vector<TarContents>{{"x", one}});
    refused("a", {{"y", one}}, "the key of the sample before");
  }
  CHECK(fs::is_empty(folder.path()));
  CHECK_THROWS_WITH(TarWriter("it.tar", {.shard_samples = 3}), ContainsSubstring("put %06d in it"));
  CHECK_THROWS_WITH(TarWriter("it.tar", {.shard_samples = -1}), ContainsSubstring("shard_samples is -1"));
  CHECK_THROWS_WITH(TarWriter(folder.file("none/it.tar")).write(Numbers{1}), ContainsSubstring("can't be written"));
}

TEST_CASE("tar dataset: quasi-random batches with any number of workers, from few pieces at a time") {
  const TemporaryFolder folder;
  const auto dataset = numbers(folder);
  const auto pages = dataset.pages(8192);
  CHECK(pages.size() == 64);
  CHECK(std::ranges::is_sorted(pages));
  CHECK(std::set<std::int64_t>(pages.begin(), pages.end()).size() >= 14);
  std::vector<std::int64_t> by_none;
  for (const int workers : {0, 1, 3}) {
    DataLoader loader({.batch_size = 8, .num_workers = workers}, dataset,
                      BetonSampler({.order = BetonOrder::quasi_random, .seed = 4, .window_pages = 3}, pages),
                      [](std::vector<Number> samples) { return collate_numbers(std::move(samples)); });
    const auto labels = labels_of(loader);
    if (workers == 0) by_none = labels;
    CHECK(labels == by_none);
  }
  CHECK(by_none != counted(64));
  std::ranges::sort(by_none);
  CHECK(by_none == counted(64));
  CHECK_THROWS_WITH(dataset.pages(0), ContainsSubstring("pages of 0 bytes"));
  CHECK_THROWS_WITH(dataset.pages(std::uint64_t(1) << 63U), ContainsSubstring("pages of 9223372036854775808 bytes"));
}

TEST_CASE("tar stream: the same batches with 0, 1, 2 and 5 workers, in order or shuffled by seed and epoch") {
  const TemporaryFolder folder;
  const auto dataset = numbers(folder);
  const std::int64_t window = GENERATE(0, 16, 1000);
  std::vector<std::vector<std::int64_t>> epochs;
  for (const int workers : {0, 1, 2, 5}) {
    DataLoader loader({.batch_size = 6, .num_workers = workers, .seed = 9}, tar_stream(dataset, {window}),
                      [](std::vector<Number> samples) { return collate_numbers(std::move(samples)); });
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      const auto labels = labels_of(loader);
      if (workers == 0) epochs.push_back(labels);
      CHECK(labels == epochs[epoch]);
    }
  }
  CHECK((epochs[0] == counted(64)) == (window == 0));
  CHECK((epochs[0] == epochs[1]) == (window == 0));
  for (auto& labels : epochs) {
    std::ranges::sort(labels);
    CHECK(labels == counted(64));
  }
  CHECK_THROWS_WITH(tar_stream(dataset, {-1}), ContainsSubstring("shuffle_window is -1"));
}

TEST_CASE("tar stream: ranks share an epoch, and a state goes on with other numbers of ranks and workers") {
  const TemporaryFolder folder;
  const auto dataset = numbers(folder);
  const auto loader_of = [&](std::int64_t rank, std::int64_t ranks, int workers, std::int64_t batch) {
    return DataLoader({.batch_size = batch, .num_workers = workers, .seed = 2, .rank = rank, .num_replicas = ranks},
                      tar_stream(dataset, {20}),
                      [](std::vector<Number> samples) { return collate_numbers(std::move(samples)); });
  };
  auto whole = loader_of(0, 1, 0, 8);
  const auto all = labels_of(whole);
  std::vector<std::int64_t> seen;
  std::string state;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    auto loader = loader_of(rank, 2, 1, 4);
    auto at = loader.begin();
    for (int batch = 0; batch < 3; ++batch) {
      const at::Tensor labels = (*at).label;
      for (std::int64_t i = 0; i < labels.size(0); ++i) seen.push_back(labels[i].item<std::int64_t>());
      if (batch < 2) ++at;
    }
    state = loader.state_dict().to_string();
  }
  auto rest = loader_of(0, 1, 2, 8);
  rest.load_state_dict(LoaderState::from_string(state));
  const auto left = labels_of(rest);
  CHECK(left == std::vector<std::int64_t>(all.begin() + 24, all.end()));
  seen.insert(seen.end(), left.begin(), left.end());
  std::ranges::sort(seen);
  CHECK(seen == counted(64));
}

TEST_CASE("tar stream: with drop_last ranks have equally many batches, without it one may have one more") {
  const TemporaryFolder folder;
  const auto dataset = numbers(folder, 50);  // of 4: 12 batches and half a one
  const auto batches_of = [&](std::int64_t rank, bool drop_last) {
    DataLoader loader({.batch_size = 4, .drop_last = drop_last, .rank = rank, .num_replicas = 5}, tar_stream(dataset),
                      [](std::vector<Number> samples) { return collate_numbers(std::move(samples)); });
    return labels_of(loader).size();
  };
  std::vector<std::size_t> whole, all;
  for (std::int64_t rank = 0; rank < 5; ++rank) {
    whole.push_back(batches_of(rank, true));
    all.push_back(batches_of(rank, false));
  }
  CHECK(whole == std::vector<std::size_t>{8, 8, 8, 8, 8});
  CHECK(all == std::vector<std::size_t>{12, 12, 10, 8, 8});
}

TEST_CASE("tar stream: a damaged sample throws with its archive and place, and is passed over") {
  const TemporaryFolder folder;
  const auto dataset = numbers(folder, 20);
  const auto place = dataset.archives.places_of(1)[3];
  std::fstream(folder.file("n-001.tar"), std::ios::binary | std::ios::in | std::ios::out).seekp(place + 20).put('!');
  // Its time is another one, so the archive is indexed anew, or refused.
  fs::last_write_time(folder.file("n-001.tar"),
                      fs::last_write_time(folder.file("n-001.tar")) + std::chrono::seconds(3));
  CHECK_THROWS_WITH(dataset.get(12), ContainsSubstring("n-001.tar") && ContainsSubstring("was it replaced?"));
  CHECK_THROWS_WITH(tar_dataset(folder.file("n-*.tar")),
                    ContainsSubstring(fmt::format("n-001.tar: at {}: no header", place)));
}

TEST_CASE("tar dataset: an archive that is cut within a sample says so, and no options would help") {
  struct Pair {
    std::int64_t label;
    std::string words;
  };
  struct Pairs {
    std::int64_t size() const { return 3; }
    Pair get(std::int64_t i) const { return {i, "words"}; }
  };
  const TemporaryFolder folder;
  TarWriter(folder.file("it.tar"), {.index = false}).write(Pairs{});
  auto bytes = bytes_of_file(folder.file("it.tar"));
  bytes.resize(2 * 2048 + 1024);  // the last sample's label is there, its words are not
  write_file(folder.file("it.tar"), bytes);
  const auto dataset = tar_dataset<Pair>(folder.file("it.tar"));
  REQUIRE(dataset.size() == 3);
  CHECK(dataset.get(1).words == "words");
  CHECK_THROWS_WITH(dataset.get(2),
                    EndsWith("it.tar: 000002: the archive ends in the middle of this sample, at byte 5120, "
                             "without an end mark: there is no file for the member \"words\" behind "
                             "[\"label.cls\"]; is it cut off?"));
  struct Other {
    std::int64_t other;
  };
  // Of a sample that is whole it is the options, and of the last one where there is an end mark.
  CHECK_THROWS_WITH(tar_dataset<Other>(folder.file("it.tar")).get(1), ContainsSubstring("TarOptions::extensions"));
  bytes.resize(bytes.size() + 1024);
  write_file(folder.file("it.tar"), bytes);
  CHECK_THROWS_WITH(tar_dataset<Pair>(folder.file("it.tar")).get(2), ContainsSubstring("TarOptions::extensions"));
}

TEST_CASE("tar rows: archives become a .beton file by its writer") {
  const TemporaryFolder folder;
  struct Picture {
    EncodedImage jpg;
    std::int64_t cls;
  };
  const std::vector<std::uint8_t> jpeg = jpeg_of(smooth_image(24, 32));
  TarWriter writer(folder.file("it.tar"));
  for (int i = 0; i < 4; ++i) {
    const std::string label = std::to_string(10 * i) + "\n";
    writer.add(
        fmt::format("key{}", i),
        std::vector<TarContents>{
            {"jpg", jpeg}, {"cls", std::span(reinterpret_cast<const std::uint8_t*>(label.data()), label.size())}});
  }
  writer.close();
  BetonWriter(folder.file("it.beton"), {.images = {.write_mode = BetonWriteMode::jpg}})
      .write(tar_dataset<Picture>(folder.file("it.tar")));
  const BetonFile file(folder.file("it.beton"));
  REQUIRE(file.size() == 4);
  CHECK(std::ranges::equal(file.image(2, file.field("jpg")).bytes, jpeg));
  CHECK(file.integer(3, file.field("cls")) == 30);
}

TEST_CASE("npy: tensors of every type, NumPy's own forms, and damaged files") {
  for (const auto type :
       {at::kByte, at::kBool, at::kShort, at::kLong, at::kHalf, at::kFloat, at::kDouble, at::kComplexFloat})
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {0}, {5}, {2, 3}, {1, 2, 1, 3}}) {
      const at::Tensor tensor = at::ones(shape, at::TensorOptions(type));
      const at::Tensor again = shoal::detail::parse_npy(shoal::detail::store_npy(tensor), "it");
      CHECK(again.scalar_type() == type);
      CHECK(at::equal(again, tensor));
    }
  CHECK_THROWS_AS(shoal::detail::store_npy(at::ones({2}, at::kBFloat16)), std::invalid_argument);
  CHECK_THROWS_WITH(shoal::detail::store_npy(at::ones({2}, at::device(at::kMeta))), ContainsSubstring("on meta"));
  const at::Tensor complex = at::complex(at::ones({2}), at::arange(2, at::kFloat));
  for (const at::Tensor& view : {complex.conj(), at::imag(complex.conj()), at::_neg_view(complex)})
    CHECK(at::equal(shoal::detail::parse_npy(shoal::detail::store_npy(view), "it"), view.resolve_conj().resolve_neg()));
  auto bytes = shoal::detail::store_npy(at::ones({2, 3}));
  const auto refused = [&](std::size_t at, char to, const std::string& what) {
    auto damaged = bytes;
    damaged[at] = std::uint8_t(to);
    CHECK_THROWS_WITH(shoal::detail::parse_npy(damaged, "it"), ContainsSubstring("it: ") && ContainsSubstring(what));
  };
  refused(0, 'x', "no .npy file");
  refused(6, 9, "no .npy file");
  refused(9, '\xff', "ends within its header");
  refused(21, 'q', "type \"q");
  refused(22, 'q', "no tensor has elements");
  bytes.pop_back();
  CHECK_THROWS_WITH(shoal::detail::parse_npy(bytes, "it"), ContainsSubstring("23 bytes of elements"));
}

TEST_CASE("tar: Python's tarfile reads what is written, and what it writes in each format is read") {
  const std::string python = in_sources(".venv/bin/python");  // not everywhere
  if (!fs::exists(python)) {
    WARN(python << " is not there: Python's tarfile was not asked");
    return;
  }
  const TemporaryFolder folder;
  const std::vector<std::uint8_t> contents = {'x', 0, 255};
  const std::string long_key = std::string(90, 'f') + "/" + std::string(150, 'k');
  TarWriter writer(folder.file("ours.tar"));
  writer.add("a", std::vector<TarContents>{{"bin", contents}, {"empty", {}}});
  writer.add(long_key, std::vector<TarContents>{{"bin", contents}});
  writer.close();
  std::ofstream(folder.file("check.py")) << R"(
import io, sys, tarfile
import numpy
folder = sys.argv[1]
with tarfile.open(folder + "/ours.tar") as tar:
    members = [(m.name, tar.extractfile(m).read()) for m in tar.getmembers()]
key = "f" * 90 + "/" + "k" * 150
assert members == [("a.bin", b"x\0\xff"), ("a.empty", b""), (key + ".bin", b"x\0\xff")], members
for name, form in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
    with tarfile.open(folder + "/" + name + ".tar", "w", format=form) as tar:
        def add(name, data, kind=tarfile.REGTYPE):
            info = tarfile.TarInfo(name)
            info.size, info.type, info.mtime = len(data), kind, 1.5 if form == tarfile.PAX_FORMAT else 1
            tar.addfile(info, io.BytesIO(data))
        add("train", b"", tarfile.DIRTYPE)
        for i in range(20):
            stem = ("train/%06d" % i) if i % 2 or form == tarfile.USTAR_FORMAT else "train/" + "k" * 140 + "%06d" % i
            add(stem + ".cls", b"%d\n" % (i * i))
            array = io.BytesIO()
            numpy.save(array, numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3) + i).astype(">f4" if i % 3 else "<f8"))
            add(stem + ".npy", array.getvalue())
            add(stem + ".\u00e4.txt", "gr\u00fc\u00dfe".encode())
)";
  REQUIRE(std::system(fmt::format("'{}' {} {}", python, folder.file("check.py"), folder.path()).c_str()) == 0);
  for (const char* format : {"ustar", "gnu", "pax"}) {
    const auto dataset = tar_dataset(folder.file(std::string(format) + ".tar"));
    REQUIRE(dataset.size() == 20);
    for (std::int64_t i = 0; i < 20; ++i) {
      const TarTensors sample = dataset.get(i);
      CHECK(sample.size() == 3);
      CHECK(sample.at("cls").item<std::int64_t>() == i * i);
      const at::Tensor array = sample.at("npy");
      CHECK(array.scalar_type() == (i % 3 != 0 ? at::kFloat : at::kDouble));
      CHECK(at::equal(array.to(at::kDouble), at::arange(6, at::kDouble).add(double(i)).view({2, 3})));
      CHECK(dataset.parts(i).key.ends_with(fmt::format("{:06}", i)));
      CHECK(dataset.parts(i).key.size() == (i % 2 != 0 || std::string(format) == "ustar" ? 12 : 152));
    }
  }
}

TEST_CASE("tar stream: a state in the middle of an epoch is refused by another order, and taken at its beginning") {
  const TemporaryFolder folder;
  const auto dataset = numbers(folder);
  const auto loader_of = [&](std::int64_t window) {
    return DataLoader({.batch_size = 8, .seed = 2}, tar_stream(dataset, {window}),
                      [](std::vector<Number> samples) { return collate_numbers(std::move(samples)); });
  };
  auto loader = loader_of(20), other = loader_of(10), same = loader_of(20);
  const LoaderState beginning = loader.state_dict();
  LoaderState middle;
  for ([[maybe_unused]] auto& batch : loader) {
    middle = loader.state_dict();
    break;
  }
  CHECK_THROWS_WITH(other.load_state_dict(middle),
                    ContainsSubstring("window of 20") && ContainsSubstring("window of 10"));
  CHECK_NOTHROW(other.load_state_dict(beginning));
  CHECK_NOTHROW(same.load_state_dict(middle));
  middle.order = "stream";  // of a version that did not say more
  CHECK_NOTHROW(other.load_state_dict(middle));
}
