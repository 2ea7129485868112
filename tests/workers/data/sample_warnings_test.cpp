// What data sets say of samples that they could read all the same, on its way to a loader's report.
#include <shoal/workers/data/sample_warnings.h>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/datasets/image_folder.h>
#include <shoal/workers/datasets/transformed_dataset.h>
#include <shoal/workers/transforms/transforms.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/workers/loader/loader_fixtures.h"

using shoal::SampleWarnings;
using shoal::warn_of_sample;

namespace {

struct Doubtful {
  std::int64_t count = 0;
  std::int64_t doubtful = 0;
  std::int64_t bad = -1;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    if (index == doubtful) warn_of_sample("sample " + std::to_string(index) + " is odd");
    if (index == bad) throw std::out_of_range("bad");
    return at::full({1}, index, at::kLong);
  }
};

// Says of each sample that it was read.
struct Talkative {
  std::int64_t count = 0;
  std::int64_t bad = -1;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    warn_of_sample("read " + std::to_string(index));
    if (index == bad) throw std::out_of_range("bad");
    return at::full({1}, index, at::kLong);
  }
};

struct TalkativeAtOnce {
  Talkative samples;
  std::int64_t size() const { return samples.size(); }
  at::Tensor get(std::int64_t index) const { return samples.get(index); }
  at::Tensor get_batch(std::span<const std::int64_t> indices) const {
    at::Tensor batch = at::zeros({std::int64_t(indices.size()), 1}, at::kLong);
    for (std::size_t i = 0; i < indices.size(); ++i) batch[std::int64_t(i)] = get(indices[i]);
    return batch;
  }
};

// Which samples the warnings are of, by their texts. Of a batch that was read at once the report has no number.
std::vector<std::int64_t> samples_of(const shoal::LoaderReport& report) {
  std::vector<std::int64_t> samples;
  for (const shoal::SampleWarning& warning : report.warnings) {
    samples.push_back(std::stoll(warning.text.substr(std::string("read ").size())));
    CHECK((warning.index == samples.back() || warning.index == -1));
  }
  return samples;
}

int failures_left = 0;  // of the sample 5, without workers

struct TalkativeStream {
  std::int64_t count = 0;
  struct Stream {
    std::int64_t next_one, count;
    std::optional<at::Tensor> next() {
      if (next_one == count) return std::nullopt;
      const std::int64_t index = next_one++;
      warn_of_sample("read " + std::to_string(index));
      if (index == 5 && failures_left > 0 && failures_left-- > 0) throw std::out_of_range("not now");
      return at::full({1}, index, at::kLong);
    }
  };
  Stream stream() const { return {0, count}; }
};

struct DoubtfulStream {
  std::int64_t count = 0;
  struct Stream {
    std::int64_t next_one, count;
    std::optional<at::Tensor> next() {
      if (next_one == count) return std::nullopt;
      if (next_one == 5) warn_of_sample("five");
      return at::full({1}, next_one++, at::kLong);
    }
  };
  Stream stream() const { return {0, count}; }
};

}  // namespace

TEST_CASE("sample warnings: the innermost collector of the thread hears them, and nobody where there is none") {
  warn_of_sample("lost");
  SampleWarnings outer;
  warn_of_sample("a");
  {
    SampleWarnings inner;
    warn_of_sample("b");
    std::thread([] { warn_of_sample("elsewhere"); }).join();
    CHECK(inner.take() == std::vector<std::string>{"b"});
    CHECK(inner.take().empty());
  }
  warn_of_sample("c");
  CHECK(outer.take() == std::vector<std::string>{"a", "c"});
}

TEST_CASE("DataLoader: report() has each warning with batch and index, also of a batch that fails") {
  const int workers = GENERATE(0, 2);
  DataLoader loader({.batch_size = 4, .num_workers = workers}, Doubtful{12, 6, 7});
  for ([[maybe_unused]] at::Tensor& batch : loader.continuing([](const std::exception&) {})) {
  }
  CHECK(loader.report().warning_count == 1);
  CHECK((loader.report().warnings == std::vector<shoal::SampleWarning>{{1, 6, "sample 6 is odd"}}));
  DataLoader streamed({.batch_size = 4, .num_workers = workers}, DoubtfulStream{12});
  CHECK(flat(one_epoch(streamed)) == counting(12));
  CHECK((streamed.report().warnings == std::vector<shoal::SampleWarning>{{1, 5, "five"}}));
}

TEST_CASE(
    "DataLoader: each warning is in the report once, with the sample that was read, whatever on_error reads again") {
  const int workers = GENERATE(0, 2);
  const auto warned_of = [&](shoal::OnError on_error, auto dataset) {
    DataLoader loader({.batch_size = 4, .num_workers = workers, .on_error = on_error, .max_retries = 1}, dataset);
    for ([[maybe_unused]] at::Tensor& batch : loader.continuing([](const std::exception&) {})) {
    }
    auto all = samples_of(loader.report());
    CHECK(loader.report().warning_count == std::int64_t(all.size()));
    return all;
  };
  using shoal::OnError;
  CHECK(warned_of(OnError::skip, Talkative{12, 6}) == counting(12));
  CHECK(warned_of(OnError::skip, TalkativeAtOnce{{12, 6}}) == counting(12));
  CHECK(warned_of(OnError::skip, TalkativeAtOnce{{12, 4}}) == counting(12));
  // The last attempt's; the batch fails, so that its last sample is not read.
  const std::vector<std::int64_t> but_7 = {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11};
  CHECK(warned_of(OnError::retry, Talkative{12, 6}) == but_7);
  // Of a sample and of the one that takes its place.
  auto all = warned_of(OnError::replace, Talkative{12, 6});
  REQUIRE(all.size() == 13);
  CHECK(all[6] == 6);
  all.erase(all.begin() + 7);
  CHECK(all == counting(12));
}

TEST_CASE("DataLoader: what a stream says of samples that are passed over is in no report") {
  failures_left = 2;
  DataLoader loader({.batch_size = 4, .on_error = shoal::OnError::retry}, TalkativeStream{12});
  CHECK(flat(one_epoch(loader)) == counting(12));
  CHECK(failures_left == 0);
  CHECK(samples_of(loader.report()) == counting(12));
  std::vector<std::int64_t> both;
  for (const int rank : {0, 1}) {
    DataLoader mine({.batch_size = 2, .drop_last = true, .rank = rank, .num_replicas = 2}, TalkativeStream{9});
    CHECK(flat(one_epoch(mine)).size() == 4);
    for (const std::int64_t index : samples_of(mine.report())) both.push_back(index);
  }
  std::ranges::sort(both);
  CHECK(both == counting(9));  // the last one was read, though its batch is left out
}

TEST_CASE("DataLoader: warnings are counted without end, and kept up to a thousand") {
  DataLoader loader({.num_workers = GENERATE(0, 1)}, Doubtful{1, 0});
  for (int epoch = 0; epoch < 1010; ++epoch) one_epoch(loader);
  CHECK(loader.report().warning_count == 1010);
  CHECK(loader.report().warnings.size() == 1000);
}

TEST_CASE("image folder: a damaged JPEG comes with a warning in the loader's report, or is refused with strict") {
  const shoal::test::TemporaryFolder folder;
  for (int i = 0; i < 4; ++i) {
    shoal::test::Bytes jpeg = shoal::test::jpeg_of(shoal::test::smooth_image(16, 16, i));
    if (i == 2) jpeg.resize(jpeg.size() - 2);  // its end marker
    std::filesystem::create_directories(std::filesystem::path(folder.path()) / "class");
    shoal::test::write_file(std::filesystem::path(folder.path()) / "class" / (std::to_string(i) + ".jpg"), jpeg);
  }
  const int workers = GENERATE(0, 1);
  DataLoader plain({.batch_size = 2, .num_workers = workers}, shoal::image_folder(folder.path()));
  for (shoal::Example& batch : plain) CHECK(batch.data.size(0) == 2);
  REQUIRE(plain.report().warnings.size() == 1);
  CHECK(plain.report().warnings[0].batch == 1);
  CHECK(plain.report().warnings[0].index == 2);
  CHECK_THAT(plain.report().warnings[0].text, ContainsSubstring("class/2.jpg: this JPEG is damaged (1 warning)"));
  // Read a batch at once: the text says which.
  DataLoader at_once({.batch_size = 2, .num_workers = workers},
                     shoal::transformed(shoal::image_folder(folder.path()), shoal::CenterCrop{.size = {8}}));
  for (shoal::Example& batch : at_once) CHECK(batch.data.size(0) == 2);
  REQUIRE(at_once.report().warnings.size() == 1);
  CHECK_THAT(at_once.report().warnings[0].text, ContainsSubstring("class/2.jpg"));
  DataLoader strict({.batch_size = 2, .num_workers = workers, .on_error = shoal::OnError::skip},
                    shoal::image_folder(folder.path(), {.strict = true}));
  std::int64_t samples = 0;
  for (shoal::Example& batch : strict) samples += batch.data.size(0);
  CHECK(samples == 3);
  REQUIRE(strict.report().faults.size() == 1);
  CHECK(strict.report().faults[0].index == 2);
}
