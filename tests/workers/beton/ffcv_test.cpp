// FFCV itself reads what shoal wrote, and wrote what shoal reads. SHOAL_FFCV_PYTHON names a Python that has FFCV 1.0.2.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/internal/workers/beton/format/jpeg_pixels.h>
#include <shoal/workers/beton/beton_dataset.h>
#include <shoal/workers/beton/beton_file.h>
#include <shoal/workers/beton/beton_writer.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/workers/beton/beton_vectors.h"

using namespace shoal;
using namespace shoal::test;

namespace {

const char* ffcv_python() {
  const char* python = std::getenv("SHOAL_FFCV_PYTHON");
  if (python == nullptr) WARN("SHOAL_FFCV_PYTHON names no Python with FFCV: it was not asked");
  return python;
}

bool run(const char* python, const TemporaryFolder& folder, const std::string& script) {
  std::ofstream(folder.file("script.py")) << script;
  // FFCV waits for ever for a worker that has failed.
  return std::system(fmt::format("timeout 300 '{}' {} {}", python, folder.file("script.py"), folder.path()).c_str()) ==
         0;
}

struct Row {
  at::Tensor image;
  std::int64_t label;
  double score;
  std::string blob;
  at::Tensor vec;
  BetonJson words;
};
struct Rows {
  bool has_equal_sizes = false;
  std::int64_t size() const { return 37; }
  Row get(std::int64_t i) const {
    return {smooth_image(has_equal_sizes ? 24 : 20 + i, 32, int(i)),
            7 * i - 3,
            double(i) / 8,
            std::string(std::size_t(i % 5), char('a' + i % 26)),  // also empty: FFCV's trap
            at::arange(6, at::kFloat).add(i).view({2, 3}),
            {fmt::format("{{\"k\": {}}}", i)}};
  }
};

/// Sums of everything in a row that do not forgive two values that change places.
double sum_of(const std::uint8_t* bytes, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += double(bytes[i]) * double(i % 1009 + 1);
  return sum;
}

double picture_sum(const BetonFile& file, std::int64_t row) {
  const BetonImage image = file.image(row, 0);
  std::vector<std::uint8_t> pixels(image.bytes.begin(), image.bytes.end());
  if (image.mode == BetonImageMode::jpg) {
    pixels.resize(std::size_t(image.width * image.height) * 3);
    shoal::detail::decode_jpeg_rows(image.bytes, image.width, image.height, pixels, "it");
  }
  return sum_of(pixels.data(), pixels.size());
}

constexpr const char* kReads = R"(
import json, sys
import numpy as np
from ffcv.fields.decoders import BytesDecoder, FloatDecoder, IntDecoder, NDArrayDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.reader import Reader

def weighed(values):
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8).astype(np.float64)
    return float((flat * (np.arange(len(flat)) % 1009 + 1)).sum())

for name in ("raw", "jpg"):
    path = f"{sys.argv[1]}/{name}.beton"
    reader = Reader(path)
    assert list(reader.field_names) == ["image", "label", "score", "blob", "vec", "words"], reader.field_names
    loader = Loader(path, batch_size=5, num_workers=1, order=OrderOption.SEQUENTIAL, drop_last=False, pipelines={
        "image": [SimpleRGBImageDecoder(), ToTensor()], "label": [IntDecoder(), ToTensor()],
        "score": [FloatDecoder(), ToTensor()], "blob": None, "vec": [NDArrayDecoder(), ToTensor()], "words": None})
    rows = []
    for images, labels, scores, vecs in loader:
        rows += [{"image": weighed(i.numpy()), "label": int(l), "score": float(s), "vec": v.tolist()}
                 for i, l, s, v in zip(images, labels, scores, vecs)]
    table = np.sort(reader.alloc_table, order="ptr")
    memory = np.memmap(path, "uint8", "r")
    for row, meta in zip(rows, reader.metadata):
        for field, key in (("f3", "blob"), ("f5", "words")):
            at, size = int(meta[field]["ptr"]), int(meta[field]["size"])
            assert table["size"][np.searchsorted(table["ptr"], at)] == size, (key, at, size)  # as FFCV's memory manager
            row[key] = bytes(memory[at : at + size]).decode()
    json.dump(rows, open(f"{sys.argv[1]}/{name}.json", "w"))
)";

constexpr const char* kWrites = R"(
import sys
import numpy as np
from ffcv.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField
from ffcv.writer import DatasetWriter

class Rows:
    def __len__(self):
        return 53
    def __getitem__(self, i):
        y, x, c = np.mgrid[0 : 24 + i % 7, 0:40, 0:3]
        image = (128 + 60 * np.sin(x / 9 + i) + 50 * np.cos(y / 7) + 9 * c).astype(np.uint8)
        return (image, i - 9, i / 4, np.frombuffer(b"x" * (i % 4 + 1), np.uint8),
                np.arange(8, dtype=np.int16).reshape(2, 4) + np.int16(i), {"i": int(i)})

for mode, workers in (("raw", 1), ("jpg", 1), ("proportion", 2)):
    path = f"{sys.argv[1]}/{mode}.beton"
    writer = DatasetWriter(path, {"image": RGBImageField(write_mode=mode), "label": IntField(), "score": FloatField(),
                                  "blob": BytesField(), "vec": NDArrayField(np.dtype("int16"), (2, 4)), "words": JSONField()},
                           page_size=1 << 21, num_workers=workers)
    writer.from_indexed_dataset(Rows(), chunksize=8)
    rows = Rows()
    with open(f"{sys.argv[1]}/{mode}.bytes", "wb") as file:
        for i in range(len(rows)):
            file.write(rows[i][0].tobytes())
)";

}  // namespace

TEST_CASE("beton and FFCV: FFCV's reader and loader give what shoal's writer was given") {
  const char* python = ffcv_python();
  if (python == nullptr) return;
  const TemporaryFolder folder;
  for (const auto mode : {BetonWriteMode::raw, BetonWriteMode::jpg})
    BetonWriter(folder.file(mode == BetonWriteMode::raw ? "raw.beton" : "jpg.beton"),
                {.page_bytes = 2U << 20U, .num_workers = 2, .chunk_size = 7, .images = {.write_mode = mode}})
        .write(Rows{true});
  REQUIRE(run(python, folder, kReads));
  for (const char* name : {"raw", "jpg"}) {
    const auto rows = nlohmann::json::parse(std::ifstream(folder.file(std::string(name) + ".json")));
    const BetonFile file(folder.file(std::string(name) + ".beton"));
    REQUIRE(std::int64_t(rows.size()) == file.size());
    for (std::int64_t i = 0; i < file.size(); ++i) {
      const auto& read = rows[std::size_t(i)];
      const Row row = Rows{true}.get(i);
      CHECK(read["image"] == picture_sum(file, i));
      if (std::string(name) == "raw") {
        const at::Tensor pixels = row.image.permute({1, 2, 0}).contiguous();
        CHECK(read["image"] == sum_of(pixels.const_data_ptr<std::uint8_t>(), std::size_t(pixels.numel())));
      }
      CHECK(read["label"] == row.label);
      CHECK(read["score"] == row.score);
      CHECK(read["blob"] == row.blob);
      CHECK(read["words"] == row.words.text + '\0');
      CHECK(read["vec"][1][2] == row.vec[1][2].item<float>());
    }
  }
}

TEST_CASE("beton and FFCV: what FFCV's writer wrote, by one process and by two, is what shoal reads") {
  const char* python = ffcv_python();
  if (python == nullptr) return;
  const TemporaryFolder folder;
  REQUIRE(run(python, folder, kWrites));
  for (const std::string name : {"raw", "jpg", "proportion"}) {
    const auto dataset = beton_dataset(folder.file(name + ".beton"));
    const BetonFile& file = dataset.files[0];
    REQUIRE(dataset.size() == 53);
    const auto pixels = bytes_of_file(folder.file(name + ".bytes"));
    std::size_t at = 0;
    std::int64_t jpegs = 0;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      const BetonSample sample = dataset.get(i);
      const at::Tensor image = sample.at("image");
      CHECK(image.sizes() == at::IntArrayRef({3, 24 + i % 7, 40}));
      const at::Tensor written =
          at::from_blob(const_cast<std::uint8_t*>(pixels.data()) + at, {24 + i % 7, 40, 3}, at::kByte);
      at += std::size_t(written.numel());
      const bool is_jpeg = file.image(i, 0).mode == BetonImageMode::jpg;
      jpegs += is_jpeg ? 1 : 0;
      const double off = (image.permute({1, 2, 0}).to(at::kFloat) - written.to(at::kFloat)).abs().mean().item<double>();
      CHECK(off <= (is_jpeg ? 4 : 0));
      CHECK(sample.at("label").item<std::int64_t>() == i - 9);
      CHECK(sample.at("score").item<double>() == double(i) / 4);
      CHECK(sample.at("blob").numel() == i % 4 + 1);
      CHECK(sample.at("vec").equal(at::arange(8, at::kShort).view({2, 4}).add(i)));
      CHECK(file.json(i, 5) == fmt::format("{{\"i\": {}}}", i));
    }
    CHECK(at == pixels.size());
    CHECK((jpegs == 0) == (name == "raw"));
    CHECK((jpegs == 53) == (name == "jpg"));
  }
}
