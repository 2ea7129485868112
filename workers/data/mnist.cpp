#include <shoal/workers/data/mnist.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMagicOfImages = 0x00000803;  // idx: two zero bytes, 8 = unsigned bytes, 3 dimensions
constexpr std::uint32_t kMagicOfLabels = 0x00000801;
constexpr std::int64_t kSide = 28;
constexpr std::int64_t kMostSamples = 100'000'000;  // a header that says more is damaged; do not allocate for it

struct CloseGzFile {
  void operator()(gzFile_s* file) const { gzclose_r(file); }
};

// zlib reads a file that is not compressed as it is.
class IdxFile {
 public:
  explicit IdxFile(fs::path path) : path_(std::move(path)), file_(gzopen(path_.c_str(), "rb")) {
    if (!file_) {
      throw DatasetError(fmt::format("{}: can't be opened: {}", path_.native(), std::strerror(errno)));
    }
    gzbuffer(file_.get(), 1U << 18U);
  }

  const fs::path& path() const { return path_; }

  // The sizes of the dimensions, once the magic number is seen to be the expected one.
  std::vector<std::int64_t> read_header(std::uint32_t expected_magic) {
    const std::uint32_t magic = read_big_endian("magic number");
    if (magic != expected_magic) {
      throw DatasetError(fmt::format("{}: magic number {:#010x}, but {:#010x} is that of a file of {}", path_.native(),
                                     magic, expected_magic, expected_magic == kMagicOfImages ? "images" : "labels"));
    }
    std::vector<std::int64_t> sizes(magic & 0xffU);
    for (auto& size : sizes) {
      size = read_big_endian("sizes");
    }
    return sizes;
  }

  void read(std::span<std::uint8_t> bytes, const char* what) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const auto asked = unsigned(std::min<std::size_t>(bytes.size() - done, 1U << 30U));
      const int got = gzread(file_.get(), bytes.data() + done, asked);
      if (got <= 0) {
        int error = Z_OK;
        const char* text = gzerror(file_.get(), &error);
        if (got == 0 || error == Z_BUF_ERROR) {
          throw DatasetError(fmt::format("{}: the file is cut short: {} of {} bytes of {}; get it again",
                                         path_.native(), done, bytes.size(), what));
        }
        throw DatasetError(fmt::format("{}: can't be read: {}", path_.native(), text));
      }
      done += std::size_t(got);
    }
  }

  // Also if zlib compares the checksum, so that a damaged file is not taken for data.
  void expect_end() {
    std::uint8_t byte = 0;
    const int got = gzread(file_.get(), &byte, 1);
    if (got > 0) {
      throw DatasetError(fmt::format("{}: the file is longer than its header says", path_.native()));
    }
    if (got < 0) {
      int error = Z_OK;
      throw DatasetError(fmt::format("{}: can't be read: {}", path_.native(), gzerror(file_.get(), &error)));
    }
  }

 private:
  std::uint32_t read_big_endian(const char* what) {
    std::array<std::uint8_t, 4> bytes{};
    read(bytes, what);
    return std::uint32_t{bytes[0]} << 24U | std::uint32_t{bytes[1]} << 16U | std::uint32_t{bytes[2]} << 8U | bytes[3];
  }

  fs::path path_;
  std::unique_ptr<gzFile_s, CloseGzFile> file_;
};

IdxFile open_idx(const fs::path& directory, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    if (fs::path path = directory / (name + suffix); fs::exists(path)) {
      return IdxFile(std::move(path));
    }
  }
  throw DatasetError(
      fmt::format("{}: no {} and no {}.gz in this directory. Debian's package dataset-fashion-mnist has them in {}: "
                  "install it, or name the directory that has them",
                  directory.native(), name, name, kFashionMnistDirectory));
}

at::Tensor read_images(IdxFile& file) {
  const auto sizes = file.read_header(kMagicOfImages);
  if (sizes[0] < 1 || sizes[0] > kMostSamples || sizes[1] != kSide || sizes[2] != kSide) {
    throw DatasetError(
        fmt::format("{}: its sizes are {}; images are [n, {}, {}]", file.path().native(), sizes, kSide, kSide));
  }
  at::Tensor images = at::empty(sizes, at::TensorOptions(at::kByte));
  file.read({images.mutable_data_ptr<std::uint8_t>(), std::size_t(images.numel())}, "pixels");
  file.expect_end();
  return images;
}

at::Tensor read_labels(IdxFile& file) {
  const auto sizes = file.read_header(kMagicOfLabels);
  if (sizes[0] < 1 || sizes[0] > kMostSamples) {
    throw DatasetError(fmt::format("{}: {} labels", file.path().native(), sizes[0]));
  }
  auto bytes = std::vector<std::uint8_t>(std::size_t(sizes[0]));
  file.read(bytes, "labels");
  file.expect_end();
  at::Tensor labels = at::empty(sizes, at::TensorOptions(at::kLong));
  std::ranges::copy(bytes, labels.mutable_data_ptr<std::int64_t>());
  return labels;
}

}  // namespace

Example MnistDataset::get(std::int64_t index) const {
  check_dataset_index(index, size());
  return {images.select(0, index), labels.select(0, index)};
}

Example MnistDataset::get_batch(std::span<const std::int64_t> indices) const {
  return {select_rows(images, indices), select_rows(labels, indices)};
}

MnistDataset load_mnist(const fs::path& directory, MnistSplit split) {
  if (!fs::is_directory(directory)) {
    throw DatasetError(fmt::format(
        "{}: there is no such directory. Debian's package dataset-fashion-mnist makes {}: install it, or name the "
        "directory that has the data set's idx files",
        directory.native(), kFashionMnistDirectory));
  }
  const std::string prefix = split == MnistSplit::train ? "train" : "t10k";
  IdxFile images_file = open_idx(directory, prefix + "-images-idx3-ubyte");
  IdxFile labels_file = open_idx(directory, prefix + "-labels-idx1-ubyte");
  MnistDataset dataset{read_images(images_file), read_labels(labels_file)};
  if (dataset.images.size(0) != dataset.labels.size(0)) {
    throw DatasetError(fmt::format("{} has {} images, but {} has {} labels", images_file.path().native(),
                                   dataset.images.size(0), labels_file.path().native(), dataset.labels.size(0)));
  }
  return dataset;
}

}  // namespace shoal
