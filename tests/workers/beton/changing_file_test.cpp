// Files that are written to while they are read, and paths that count from a folder which the process has left.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <shoal/internal/workers/beton/format/beton_layout.h>
#include <shoal/ipc/fd.h>
#include <shoal/workers/beton/beton_loader.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/datasets/dataset_error.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using namespace shoal::test;

namespace {

constexpr std::size_t kLong = 1U << 20U;

struct Text {
  std::string text;
};
struct OneText {
  std::int64_t size() const { return 1; }
  Text get(std::int64_t) const { return {std::string(kLong, 'x')}; }
};

std::string text_file(const TemporaryFolder& folder) {
  BetonWriter(folder.file("it"), {.page_bytes = 2U << 20U}).write(OneText{});
  return folder.file("it");
}

/// Says that the one text has 8 bytes, and all of them, in turn; as long as it lives.
class LengthsInTurn {
 public:
  explicit LengthsInTurn(const std::string& path) : file_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
    REQUIRE(file_);
    thread_ = std::thread([this] {
      for (std::uint64_t i = 0; !ending_; ++i) write(i % 2 == 0 ? 8 : kLong);
      write(kLong);
    });
  }
  LengthsInTurn(const LengthsInTurn&) = delete;
  ~LengthsInTurn() {
    ending_ = true;
    thread_.join();
  }

 private:
  void write(std::uint64_t length) const {
    std::uint8_t bytes[8];
    shoal::detail::store64(bytes, length);
    constexpr std::size_t kCell = shoal::detail::kBetonHeaderBytes + shoal::detail::kBetonDescriptorBytes;
    [[maybe_unused]] const auto done = ::pwrite(file_.get(), bytes, sizeof bytes, kCell + 8);
  }

  Fd file_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

/// The folder that relative paths count from, for a while.
class InFolder {
 public:
  explicit InFolder(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  InFolder(const InFolder&) = delete;
  ~InFolder() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

/// Reads until both lengths have been seen often; a value that changes while it is read may be refused.
void read_both(const auto& text_of) {
  for (int shorter = 0, longer = 0; shorter < 3000 || longer < 3000;) try {
      const at::Tensor text = text_of();
      REQUIRE((text.size(0) == 8 || text.size(0) == std::int64_t(kLong)));
      const auto* letters = text.const_data_ptr<std::uint8_t>();
      CHECK(letters[0] == 'x');
      CHECK(letters[text.size(0) - 1] == 'x');
      ++(text.size(0) == 8 ? shorter : longer);
    } catch (const DatasetError&) {  // what it may be
    }
}

}  // namespace

TEST_CASE("beton dataset: a length that another thread changes in the file never leads outside a sample's memory") {
  const TemporaryFolder folder;
  const std::string path = text_file(folder);
  const auto plain = beton_dataset(path), padded = beton_dataset(path, {.pipelines = {{"text", {BytesDecoder{}}}}});
  const LengthsInTurn changing(path);
  read_both([&] { return plain.get(0).at("text"); });
  read_both([&] { return padded.get(0).at("text"); });
}

TEST_CASE("beton file: opened by a relative path, it is the same file wherever its process goes") {
  const TemporaryFolder folder, elsewhere;
  text_file(folder);
  std::optional<BetonLoader<>> loader;
  {
    const InFolder here(folder.path());
    loader.emplace(std::filesystem::path("it"), BetonLoaderOptions{.num_workers = 1});
  }
  CHECK(loader->dataset().files[0].path() == "it");
  const InFolder there(elsewhere.path());
  std::int64_t batches = 0;
  for (auto& batch : *loader) {
    CHECK(batch["text"].size(1) == std::int64_t(kLong));
    ++batches;
  }
  CHECK(batches == 1);
}
