#include <shoal/workers/data/mnist.h>

#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace fs = std::filesystem;
using shoal::load_mnist;
using shoal::MnistDataset;
using shoal::MnistSplit;

namespace {

class Directory : public shoal::test::TemporaryFolder {
 public:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
  }
  void write_gz(const std::string& name, const std::string& bytes) const {
    gzFile zipped = ::gzopen(file(name).c_str(), "wb");
    ::gzwrite(zipped, bytes.data(), static_cast<unsigned>(bytes.size()));
    ::gzclose(zipped);
  }
};

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string images(std::uint32_t count, std::uint32_t side = 28, std::uint32_t magic = 0x803) {
  std::string bytes = big_endian(magic) + big_endian(count) + big_endian(side) + big_endian(side);
  for (std::uint32_t i = 0; i < count; ++i) bytes += std::string(std::size_t{side} * side, static_cast<char>(i));
  return bytes;
}

std::string labels(std::uint32_t count) {
  std::string bytes = big_endian(0x801) + big_endian(count);
  for (std::uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

}  // namespace

TEST_CASE("load_mnist: reads plain and gzipped idx files alike") {
  const Directory directory;
  directory.write("train-images-idx3-ubyte", images(12));
  directory.write_gz("train-labels-idx1-ubyte.gz", labels(12));
  const MnistDataset dataset = load_mnist(directory.path(), MnistSplit::train);
  CHECK(dataset.size() == 12);
  CHECK(dataset.images.sizes() == at::IntArrayRef({12, 28, 28}));
  CHECK(dataset.images.scalar_type() == at::kByte);
  CHECK(dataset.labels.scalar_type() == at::kLong);

  const shoal::Example example = dataset.get(11);
  CHECK(example.data.eq(11).all().item<bool>());
  CHECK(example.target.item<std::int64_t>() == 1);

  const std::vector<std::int64_t> indices{3, 11};
  const shoal::Example batch = dataset.get_batch(indices);
  CHECK(batch.data.sizes() == at::IntArrayRef({2, 28, 28}));
  CHECK(batch.data[0].eq(3).all().item<bool>());
  CHECK(batch.target[1].item<std::int64_t>() == 1);
  CHECK_THROWS_AS(dataset.get(12), std::out_of_range);
}

TEST_CASE("load_mnist: the two splits are two pairs of files") {
  const Directory directory;
  directory.write_gz("t10k-images-idx3-ubyte.gz", images(2));
  directory.write_gz("t10k-labels-idx1-ubyte.gz", labels(2));
  CHECK(load_mnist(directory.path(), MnistSplit::test).size() == 2);
  CHECK_THROWS_WITH(load_mnist(directory.path(), MnistSplit::train),
                    ContainsSubstring("train-images-idx3-ubyte.gz") && ContainsSubstring("dataset-fashion-mnist"));
}

TEST_CASE("load_mnist: a missing directory is answered with its name and the package") {
  CHECK_THROWS_AS(load_mnist("/nonexistent/data", MnistSplit::train), shoal::DatasetError);
  CHECK_THROWS_WITH(load_mnist("/nonexistent/data", MnistSplit::train),
                    ContainsSubstring("/nonexistent/data") && ContainsSubstring("dataset-fashion-mnist"));
}

TEST_CASE("load_mnist: a damaged file is refused with its name and what is wrong") {
  const Directory directory;
  directory.write("train-labels-idx1-ubyte", labels(3));
  const auto refused = [&](const std::string& because) {
    CHECK_THROWS_WITH(load_mnist(directory.path(), MnistSplit::train),
                      ContainsSubstring("train-images") && ContainsSubstring(because));
  };
  SECTION("another format") {
    directory.write("train-images-idx3-ubyte", labels(3));
    refused("magic number 0x00000801");
  }
  SECTION("cut short") {
    directory.write("train-images-idx3-ubyte", images(3).substr(0, 1000));
    refused("cut short: 984 of 2352 bytes");
  }
  SECTION("cut short within the header") {
    directory.write("train-images-idx3-ubyte", images(3).substr(0, 6));
    refused("cut short");
  }
  SECTION("cut short while compressed") {
    directory.write_gz("train-images-idx3-ubyte.gz", images(3));
    fs::resize_file(directory.file("train-images-idx3-ubyte.gz"), 30);
    refused("cut short");
  }
  SECTION("empty") {
    directory.write("train-images-idx3-ubyte", "");
    refused("cut short");
  }
  SECTION("a byte changed while compressed") {
    directory.write_gz("train-images-idx3-ubyte.gz", images(3));
    const fs::path path = directory.file("train-images-idx3-ubyte.gz");
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-6, std::ios::end);  // in the checksum
    file.put('\x5a');
    file.close();
    refused("can't be read");
  }
  SECTION("longer than it says") {
    directory.write("train-images-idx3-ubyte", images(3) + "x");
    refused("longer than its header says");
  }
  SECTION("images of another size") {
    directory.write("train-images-idx3-ubyte", images(3, 32));
    refused("[3, 32, 32]");
  }
  SECTION("a header that would take all memory") {
    directory.write("train-images-idx3-ubyte",
                    big_endian(0x803) + big_endian(0xffffffff) + big_endian(28) + big_endian(28));
    refused("4294967295");
  }
  SECTION("another number of images than of labels") {
    directory.write("train-images-idx3-ubyte", images(4));
    refused("has 4 images");
  }
}

TEST_CASE("load_mnist: reads Debian's Fashion-MNIST") {
  if (!fs::exists(shoal::kFashionMnistDirectory)) {
    WARN("dataset-fashion-mnist is not installed: nothing tested here");
    return;
  }
  const MnistDataset test = load_mnist(shoal::kFashionMnistDirectory, MnistSplit::test);
  CHECK(test.size() == 10000);
  CHECK(test.labels.bincount().eq(1000).all().item<bool>());  // its classes are equally frequent
  CHECK(test.labels[0].item<std::int64_t>() == 9);            // an ankle boot
}
