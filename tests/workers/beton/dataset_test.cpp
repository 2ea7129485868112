// BetonDataset, its orders, and BetonLoader: the same samples with any number of workers and ranks, also after a stop.
#include <ATen/ATen.h>
#include <shoal/internal/workers/beton/order/page_order.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/beton/beton_loader.h>
#include <shoal/workers/beton/beton_writer.h>
#include <shoal/workers/datasets/dataset_error.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/pictures/image_files.h"
#include "tests/workers/beton/beton_vectors.h"

using namespace shoal;
using namespace shoal::test;

static_assert(Encodable<BetonDataset<>>);

namespace {

struct Labelled {
  at::Tensor image;
  std::int64_t label;
};
struct Numbered {
  std::int64_t count = 64, bytes = 200'000;
  std::int64_t size() const { return count; }
  struct Sample {
    at::Tensor filling;
    std::int64_t label;
  };
  Sample get(std::int64_t i) const { return {at::full({bytes}, i, at::kByte), i}; }
};

/// Ten samples a page of 2 MiB.
std::string numbered(const TemporaryFolder& folder, std::int64_t count = 64, const std::string& name = "it") {
  BetonWriter(folder.file(name), {.page_bytes = 2U << 20U}).write(Numbered{.count = count});
  return folder.file(name);
}

std::vector<std::int64_t> labels_read(auto& loader) {
  std::vector<std::int64_t> labels;
  for (auto& batch : loader) {
    const at::Tensor& label = batch["label"];
    for (std::int64_t i = 0; i < label.size(0); ++i) {
      labels.push_back(label[i].template item<std::int64_t>());
      CHECK(batch["filling"][i][17].template item<int>() == labels.back());
    }
  }
  return labels;
}

std::vector<std::int64_t> counted(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(to - from));
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::ranges::sort(values);
  return values;
}

}  // namespace

TEST_CASE("beton dataset: all fields of a file as tensors, by name") {
  const TemporaryFolder folder;
  const auto dataset = beton_dataset(write_beton(folder, "all", beton_vector("all")));
  REQUIRE(dataset.size() == 5);
  BetonSample sample = dataset.get(2);
  CHECK(sample["label"].item<std::int64_t>() == 19);
  CHECK(sample["score"].item<double>() == 1.0);
  CHECK(sample["vec"].equal(at::arange(6, at::kFloat).add(2).view({2, 3})));
  CHECK(sample["blob"].equal(at::full({6}, 67, at::kByte)));
  CHECK(sample["a_very_long_fiel"].size(0) == 26);
  const auto pixels = at::arange(6 * 5 * 3, at::kLong).mul(7).add(26).remainder(251).to(at::kByte).view({6, 5, 3});
  CHECK(sample["image"].equal(pixels.permute({2, 0, 1})));
  CHECK_THROWS_AS(dataset.get(5), std::out_of_range);
  CHECK_THROWS_WITH(dataset.get_batch(std::vector<std::int64_t>{0, 1}),
                    ContainsSubstring("sample 1, field \"image\" is [3, 5, 5], sample 0 of the same batch [3, 4, 5]"));
}

TEST_CASE("beton dataset: a sample of one's own takes the fields that its members are named after") {
  struct Mine {
    std::int8_t label;
    float score;
    std::string blob;
    BetonJson a_very_long_field_name;
    at::Tensor vec;
  };
  const TemporaryFolder folder;
  const std::string path = write_beton(folder, "all", beton_vector("all"));
  const Mine mine = beton_dataset<Mine>(path).get(3);
  CHECK(mine.label == 30);
  CHECK(mine.score == 1.5F);
  CHECK(mine.blob == std::string(9, 'D'));
  CHECK_THAT(mine.a_very_long_field_name.text, StartsWith("{\"k\": 3"));
  CHECK(mine.vec.equal(at::arange(6, at::kFloat).add(3).view({2, 3})));
  struct Missing {
    std::int64_t class_number;
  };
  CHECK_THROWS_WITH(beton_dataset<Missing>(path).get(0), ContainsSubstring("no field is named \"class_number\""));
  struct Narrow {
    std::uint8_t label;
  };
  CHECK_THROWS_WITH(beton_dataset<Narrow>(path).get(0), ContainsSubstring("field \"label\": -3 does not fit"));
}

TEST_CASE("beton dataset: JPEGs and raw pictures become the pictures that were written") {
  struct Pictures {
    std::int64_t size() const { return 4; }
    Labelled get(std::int64_t i) const { return {smooth_image(30, 44, int(i)), i}; }
  };
  const TemporaryFolder folder;
  BetonWriter(folder.file("raw")).write(Pictures{});
  BetonWriter(folder.file("jpg"), {.images = {.write_mode = BetonWriteMode::jpg}}).write(Pictures{});
  auto raw = beton_dataset(folder.file("raw")), jpg = beton_dataset(folder.file("jpg"));
  const std::vector<std::int64_t> all = {0, 1, 2, 3};
  const BetonSample raw_batch = raw.get_batch(all), jpg_batch = jpg.get_batch(all);
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(raw.get(i)["image"].equal(smooth_image(30, 44, int(i))));
    CHECK(raw_batch.at("image")[i].equal(smooth_image(30, 44, int(i))));
    const auto difference = jpg.get(i)["image"].to(at::kInt).sub(smooth_image(30, 44, int(i)).to(at::kInt)).abs();
    CHECK(difference.to(at::kFloat).mean().item<float>() < 3);
    CHECK(jpg_batch.at("image")[i].equal(jpg.get(i)["image"]));
  }
}

TEST_CASE("beton dataset: arrays of the other byte order come in this machine's") {
  const TemporaryFolder folder;
  auto bytes = beton_vector("all");
  bytes[24 + 4 * 1041 + 17 + 264 + 7] = '>';
  const auto dataset = beton_dataset(write_beton(folder, "big", bytes));
  const float swapped = dataset.get(1)["vec"][0][0].item<float>();
  std::uint32_t bits;
  std::memcpy(&bits, &swapped, 4);
  CHECK(bits == 0x0000803f);  // of 1.0, the bytes turned round
}

TEST_CASE("beton dataset: several files as one, some samples of them, and those that a filter takes") {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths = {numbered(folder, 7, "a"), numbered(folder, 5, "b")};
  const auto both = beton_dataset(paths);
  REQUIRE(both.size() == 12);
  CHECK(both.get(6)["label"].item<std::int64_t>() == 6);
  CHECK(both.get(7)["label"].item<std::int64_t>() == 0);
  CHECK(both.get(11)["label"].item<std::int64_t>() == 4);
  CHECK(both.pages()[6] != both.pages()[7]);
  const auto some = beton_dataset(paths, {.indices = {11, 3}});
  REQUIRE(some.size() == 2);
  CHECK(some.get(0)["label"].item<std::int64_t>() == 4);
  CHECK(some.get(1)["label"].item<std::int64_t>() == 3);
  const auto even = beton_dataset(
      paths, {.filter = [](const BetonFile& file, std::int64_t row) { return file.integer(row, 1) % 2 == 0; }});
  CHECK(even.size() == 7);
  CHECK(even.get(4)["label"].item<std::int64_t>() == 0);
  CHECK_THROWS_AS(beton_dataset(paths, {.indices = {12}}), std::out_of_range);
  CHECK_THROWS_WITH(
      beton_dataset(std::vector<std::filesystem::path>{paths[0], write_beton(folder, "all", beton_vector("all"))}),
      ContainsSubstring("has other fields than"));
}

TEST_CASE("beton dataset: of a file with two fields of one name there are no samples by name, but all others") {
  const TemporaryFolder folder;
  auto bytes = beton_vector("all");
  std::copy_n("score", 6, bytes.begin() + 24 + 1041 + 1);  // was "label"
  const std::string path = write_beton(folder, "twice", bytes);
  CHECK_THROWS_WITH(beton_dataset(path), ContainsSubstring("twice.beton: two fields are named \"score\""));
  struct Blob {
    std::string blob;
  };
  CHECK(beton_dataset<Blob>(path).get(1).blob == "BBB");
  struct Score {
    double score;
  };
  CHECK_THROWS_WITH(beton_dataset<Score>(path).get(1), ContainsSubstring("two fields are named \"score\""));
  CHECK(BetonFile(path).real(2, 2) == 1);
}

TEST_CASE("beton order: quasi-random visits each sample once, few pages at a time, by seed and epoch alone") {
  std::vector<std::int64_t> pages;
  for (std::int64_t i = 0; i < 1000; ++i) pages.push_back(i % 40);  // 25 samples in each, not side by side
  const auto order = shoal::detail::quasi_random_order(pages, 4, 9, 3);
  CHECK(sorted(order) == counted(0, 1000));
  for (std::size_t first = 0; first < order.size(); first += 100) {
    std::set<std::int64_t> seen;
    for (std::size_t i = first; i < first + 100; ++i) seen.insert(pages[std::size_t(order[i])]);
    CHECK(seen.size() == 4);
  }
  CHECK(order == shoal::detail::quasi_random_order(pages, 4, 9, 3));
  CHECK(order != shoal::detail::quasi_random_order(pages, 4, 9, 4));
  CHECK(order != shoal::detail::quasi_random_order(pages, 4, 10, 3));
  // Within a window samples are mixed: those of one page do not come one after the other.
  std::int64_t neighbours = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    neighbours += pages[std::size_t(order[i])] == pages[std::size_t(order[i - 1])] ? 1 : 0;
  CHECK(neighbours < 400);
}

TEST_CASE("beton sampler: ranks deal the order out in turn, and another number of them goes on") {
  std::vector<std::int64_t> pages;
  for (std::int64_t i = 0; i < 60; ++i) pages.push_back(i / 6);
  for (const BetonOrder order : {BetonOrder::sequential, BetonOrder::random, BetonOrder::quasi_random}) {
    const auto of = [&](std::int64_t ranks, std::int64_t rank) {
      BetonSampler sampler({.order = order, .seed = 4, .num_replicas = ranks, .rank = rank, .window_pages = 2}, pages);
      sampler.set_epoch(2);
      return sampler;
    };
    const auto whole = of(1, 0).indices();
    CHECK(sorted(whole) == counted(0, 60));
    CHECK(of(1, 0).description() == of(3, 2).description());
    // Three ranks see 24 samples; then two ranks share the rest.
    std::vector<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const auto mine = of(3, rank).indices();
      CHECK(mine.size() == 20);
      seen.insert(seen.end(), mine.begin(), mine.begin() + 8);
    }
    CHECK(sorted(seen) == sorted({whole.begin(), whole.begin() + 24}));
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const auto mine = of(2, rank).indices_from(24);
      seen.insert(seen.end(), mine.begin(), mine.end());
    }
    CHECK(sorted(seen) == counted(0, 60));
  }
  CHECK_THROWS_AS(BetonSampler({.num_replicas = 2, .rank = 2}, pages), std::invalid_argument);
  CHECK_THROWS_AS(BetonSampler({.window_pages = 0}, pages), std::invalid_argument);
  CHECK_THROWS_AS(BetonSampler({}, {}), std::invalid_argument);
}

TEST_CASE("beton loader: the same batches with 0, 1 and 3 workers, another order every epoch") {
  const TemporaryFolder folder;
  const std::string path = numbered(folder);
  std::vector<std::vector<std::int64_t>> epochs;
  for (const int workers : {0, 1, 3}) {
    BetonLoader loader(
        path,
        {.batch_size = 10, .num_workers = workers, .order = BetonOrder::quasi_random, .seed = 3, .window_pages = 2});
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      const auto labels = labels_read(loader);
      CHECK(labels.size() == 60);  // drop_last, as FFCV has it
      if (workers == 0)
        epochs.push_back(labels);
      else
        CHECK(labels == epochs[epoch]);
    }
  }
  CHECK(epochs[0] != epochs[1]);
  BetonLoader in_order(path, {.batch_size = 10, .drop_last = false});
  CHECK(labels_read(in_order) == counted(0, 64));
  CHECK_THROWS_AS(BetonLoader(path, {.batches_ahead = 0}), std::invalid_argument);
}

TEST_CASE("beton loader: a state in the middle of a quasi-random epoch goes on with other workers") {
  const TemporaryFolder folder;
  const std::string path = numbered(folder);
  const BetonLoaderOptions options{
      .batch_size = 8, .num_workers = 1, .order = BetonOrder::quasi_random, .seed = 5, .window_pages = 2};
  BetonLoader whole(path, options);
  const auto all = labels_read(whole);
  std::string state;
  {
    BetonLoader first(path, options);
    auto at = first.begin();
    for (int batch = 1; batch < 3; ++batch) ++at;
    state = first.state_dict().to_string();
  }
  BetonLoaderOptions others = options;
  others.num_workers = 2;
  BetonLoader rest(path, others);
  rest.load_state_dict(LoaderState::from_string(state));
  CHECK(labels_read(rest) == std::vector<std::int64_t>(all.begin() + 24, all.end()));
  others.window_pages = 3;
  BetonLoader other_order(path, others);
  CHECK_THROWS_WITH(other_order.load_state_dict(LoaderState::from_string(state)),
                    ContainsSubstring("quasi_random with seed 5, 2 pages"));
}

TEST_CASE("beton loader: a quasi-random epoch goes on at any batch with any other numbers of ranks and workers") {
  const TemporaryFolder folder;
  const auto dataset = beton_dataset(numbered(folder, 48));
  const auto loader_of = [&](std::int64_t ranks, std::int64_t rank, int workers) {
    return DataLoader(
        {.batch_size = 2, .num_workers = workers, .seed = 7}, dataset,
        BetonSampler(
            {.order = BetonOrder::quasi_random, .seed = 7, .num_replicas = ranks, .rank = rank, .window_pages = 2},
            dataset.pages()));
  };
  auto alone = loader_of(1, 0, 0);
  const auto whole = labels_read(alone);
  for (const auto& [before, after] : {std::pair(1, 3), std::pair(2, 1), std::pair(3, 2), std::pair(4, 6)})
    for (std::int64_t stop = 1; stop < 24 / before; ++stop) {
      CAPTURE(before, after, stop);
      std::set<std::string> states;
      for (std::int64_t rank = 0; rank < before; ++rank) {
        auto first = loader_of(before, rank, 0);
        auto at = first.begin();
        for (std::int64_t batch = 1; batch < stop; ++batch) ++at;
        states.insert(first.state_dict().to_string());
      }
      REQUIRE(states.size() == 1);  // whichever rank's
      std::vector<std::int64_t> rest;
      for (std::int64_t rank = 0; rank < after; ++rank) {
        auto loader = loader_of(after, rank, stop == 3 ? 2 : 0);
        loader.load_state_dict(LoaderState::from_string(*states.begin()));
        const auto labels = labels_read(loader);
        rest.insert(rest.end(), labels.begin(), labels.end());
      }
      // What ranks have beyond an equal share are samples that come twice.
      const std::vector<std::int64_t> left(whole.begin() + 2 * before * stop, whole.end());
      CHECK(rest.size() == (left.size() + std::size_t(after) - 1) / std::size_t(after) * std::size_t(after));
      const std::set<std::int64_t> seen(rest.begin(), rest.end()), expected(left.begin(), left.end());
      CHECK(std::ranges::includes(seen, expected));
    }
}
