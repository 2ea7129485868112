#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <shoal/workers/data/data_loader.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/loader/loader_fixtures.h"

namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

// 0, 1, ..., size - 1 as a stream that cannot skip; throws at one place.
struct Counting {
  std::int64_t count = 0;
  std::int64_t at_fault = -1;
  std::string kills = {};  // a file: whoever can remove it dies at the place at_fault

  struct Stream {
    const Counting* owner;
    std::int64_t at = 0;
    std::optional<at::Tensor> next() {
      if (at >= owner->count) return std::nullopt;
      const std::int64_t number = at++;
      if (number == owner->at_fault) {
        if (owner->kills.empty()) throw std::out_of_range("nothing to be had here");
        if (::rmdir(owner->kills.c_str()) == 0) ::raise(SIGKILL);
      }
      return at::full({1}, number, at::kLong);
    }
  };
  Stream stream() const { return {this}; }
};

// File f is f, f + 100, ...; its readers deal out the files themselves.
struct Files {
  std::vector<std::int64_t> lengths;
  struct Stream {
    const Files* owner;
    std::int64_t file, step, line = 0;
    std::optional<at::Tensor> next() {
      while (file < std::int64_t(owner->lengths.size()) && line >= owner->lengths[std::size_t(file)]) {
        file += step;
        line = 0;
      }
      if (file >= std::int64_t(owner->lengths.size())) return std::nullopt;
      return at::full({1}, file + 100 * line++, at::kLong);
    }
  };
  Stream stream(const shoal::Shard& shard) const { return {this, shard.index, shard.count}; }
  std::vector<std::int64_t> all() const {
    std::vector<std::int64_t> samples;
    for (std::size_t file = 0; file < lengths.size(); ++file)
      for (std::int64_t line = 0; line < lengths[file]; ++line) samples.push_back(std::int64_t(file) + 100 * line);
    std::ranges::sort(samples);
    return samples;
  }
};

template <class D>
Batches batches_of(const DataLoaderOptions& options, const D& dataset) {
  DataLoader loader(options, dataset);
  return one_epoch(loader);
}

}  // namespace

TEST_CASE("DataLoader: an iterable data set gives the same batches with 0, 1, 2 and 7 workers, each sample once") {
  for (const std::int64_t count : {0, 1, 4, 41}) {
    const Batches alone = batches_of({.batch_size = 4}, Counting{count});
    CHECK(flat(alone) == counting(count));
    for (const int workers : {1, 2, 7})
      CHECK(batches_of({.batch_size = 4, .num_workers = workers}, Counting{count}) == alone);
  }
}

TEST_CASE("DataLoader: the ranks of an iterable data set have each sample once, with drop_last equally many batches") {
  for (const bool drop_last : {false, true}) {
    std::vector<std::int64_t> seen;
    std::vector<std::size_t> lengths;
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const Batches mine = batches_of(
          {.batch_size = 4, .num_workers = int(rank), .drop_last = drop_last, .rank = rank, .num_replicas = 3},
          Counting{41});
      lengths.push_back(mine.size());
      for (const std::int64_t number : flat(mine)) seen.push_back(number);
    }
    std::ranges::sort(seen);
    CHECK(seen == counting(drop_last ? 36 : 41));
    CHECK(lengths == (drop_last ? std::vector<std::size_t>{3, 3, 3} : std::vector<std::size_t>{4, 4, 3}));
  }
}

TEST_CASE(
    "DataLoader: a data set that deals itself out depends on num_shards, not on workers; uneven streams end alone") {
  const Files files{{3, 0, 11, 1, 5}};
  const Batches alone = batches_of({.batch_size = 2, .num_shards = 4}, files);
  auto all = flat(alone);
  std::ranges::sort(all);
  CHECK(all == files.all());
  for (const int workers : {1, 2, 7})
    CHECK(batches_of({.batch_size = 2, .num_workers = workers, .num_shards = 4}, files) == alone);
  for (const int workers : {1, 2, 3}) {
    std::vector<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < 2; ++rank)
      for (const std::int64_t sample :
           flat(batches_of({.batch_size = 2, .num_workers = workers, .rank = rank, .num_replicas = 2}, files)))
        seen.push_back(sample);
    std::ranges::sort(seen);
    CHECK(seen == files.all());
  }
}

TEST_CASE("DataLoader: an iterable data set goes on from a state at any batch, with other workers and ranks") {
  const Files files{{3, 0, 11, 1, 5}};
  auto check = [](const auto& dataset, const DataLoaderOptions& options, std::vector<std::int64_t> whole) {
    for (std::size_t stop = 1; stop <= 5; ++stop) {
      std::vector<std::int64_t> seen;
      shoal::LoaderState state;
      DataLoader loader(options, dataset);
      std::size_t had = 0;
      for (const at::Tensor& batch : loader) {
        for (const std::int64_t number : first_column(batch)) seen.push_back(number);
        state = loader.state_dict();
        if (++had == stop) break;
      }
      CHECK(shoal::LoaderState::from_string(state.to_string()) == state);
      for (std::int64_t rank = 0; rank < 2; ++rank) {
        DataLoaderOptions others = options;
        others.rank = rank;
        others.num_replicas = 2;
        others.num_workers = int(1 - rank);
        DataLoader other(others, dataset);
        other.load_state_dict(state);
        CHECK(other.state_dict() == state);
        for (const std::int64_t number : flat(one_epoch(other))) seen.push_back(number);
        CHECK(other.state_dict().epoch == 1);
      }
      std::ranges::sort(seen);
      CHECK(seen == whole);
    }
  };
  check(Counting{23}, {.batch_size = 3, .num_workers = 2}, counting(23));
  check(files, {.batch_size = 3, .num_workers = 2}, files.all());
  DataLoader other({.batch_size = 2}, files);
  CHECK_THROWS_WITH(other.load_state_dict({.place = 6, .shards = 2, .batch_size = 3}),
                    ContainsSubstring("batch_size = 3"));
  CHECK_THROWS_WITH(other.load_state_dict({.place = 6}), ContainsSubstring("map-style"));
}

TEST_CASE("DataLoader: a killed worker's stream is opened again where it was: no sample lost, none twice") {
  const std::string once = "/tmp/shoal-iterable-" + std::to_string(::getpid());
  REQUIRE(::mkdir(once.c_str(), 0700) == 0);
  DataLoader loader({.batch_size = 3, .num_workers = 2}, Counting{60, 31, once});
  CHECK(flat(one_epoch(loader)) == counting(60));
  CHECK(loader.report().deaths.size() == 1);
}

TEST_CASE("DataLoader: what a stream throws comes at its batch, or is skipped; samples passed over harm nobody") {
  const int workers = GENERATE(0, 1, 2);
  CAPTURE(workers);
  auto expected = counting(20);
  expected.erase(expected.begin() + 9);
  DataLoader skipping({.batch_size = 4, .num_workers = workers, .on_error = shoal::OnError::skip}, Counting{20, 9});
  CHECK(flat(one_epoch(skipping)) == expected);
  REQUIRE(skipping.report().faults.size() == 1);
  CHECK(skipping.report().faults[0].index == 9);
  CHECK(skipping.report().faults[0].batch == 2);

  DataLoader raising({.batch_size = 4, .num_workers = workers}, Counting{20, 9});
  auto it = raising.begin();
  ++it;
  CHECK_THROWS_WITH(++it, ContainsSubstring("nothing to be had here"));
  ++it;
  CHECK(first_column(*it) == std::vector<std::int64_t>{12, 13, 14, 15});

  DataLoader retrying({.batch_size = 4, .num_workers = workers, .on_error = shoal::OnError::retry, .max_retries = 2},
                      Counting{20, 1});
  CHECK_THROWS_WITH(retrying.begin(), ContainsSubstring("nothing to be had here"));
  REQUIRE(retrying.report().faults.size() == 2);
  for (const shoal::SampleFault& fault : retrying.report().faults) {
    CHECK(fault.index == 1);
    CHECK(fault.action == shoal::OnError::retry);
  }
}

// Draws from libtorch's generator, also for samples that are passed over.
struct Drawing {
  std::int64_t count = 0;
  struct Stream {
    std::int64_t left;
    std::optional<at::Tensor> next() {
      if (left-- == 0) return std::nullopt;
      return at::rand({2}, at::kDouble);
    }
  };
  Stream stream() const { return {count}; }
};
struct DrawingShards {
  std::int64_t count = 0;
  Drawing::Stream stream(const shoal::Shard& shard) const { return {count / shard.count}; }
};

TEST_CASE("DataLoader: what streams draw depends on seed, epoch and place, not on the number of workers") {
  const auto same_with_workers = [](const auto& dataset, std::int64_t num_shards) {
    shoal::DataLoaderOptions options{.batch_size = 4, .seed = 5, .num_shards = num_shards};
    std::vector<at::Tensor> expected;
    for (const int workers : {0, 1, 2, 3}) {
      CAPTURE(workers);
      options.num_workers = workers;
      DataLoader loader(options, dataset);
      std::vector<at::Tensor> drawn;
      for (int epoch = 0; epoch < 2; ++epoch)
        for (const at::Tensor& batch : loader) drawn.push_back(batch.clone());
      if (workers == 0) expected = drawn;
      REQUIRE(drawn.size() == expected.size());
      for (std::size_t i = 0; i < drawn.size(); ++i) CHECK(drawn[i].equal(expected[i]));
    }
    CHECK_FALSE(expected.front().equal(expected.at(1)));
    CHECK_FALSE(expected.front().equal(expected.at(expected.size() / 2)));  // the next epoch
  };
  same_with_workers(Drawing{40}, 0);
  same_with_workers(DrawingShards{40}, 2);
}

TEST_CASE("DataLoader: size() of an iterable data set is known where it says its own; what it cannot have is refused") {
  const std::list<std::int64_t> range{0, 1, 2, 3, 4, 5, 6};
  DataLoader known({.batch_size = 2, .rank = 1, .num_replicas = 2}, range);
  CHECK(known.size() == 2);
  std::vector<std::int64_t> mine;
  for (const at::Tensor& batch : known) {
    for (const std::int64_t number : first_column(batch)) mine.push_back(number);
  }
  CHECK(mine == std::vector<std::int64_t>{2, 3, 6});
  DataLoader unknown({}, Counting{3});
  CHECK_THROWS_WITH(unknown.size(), ContainsSubstring("size()"));
  CHECK_THROWS_WITH(DataLoader({.shuffle = true}, Counting{3}), ContainsSubstring("shuffle"));
  CHECK_THROWS_WITH(DataLoader({}, Counting{3}, shoal::SequentialSampler(3)), ContainsSubstring("sampler"));
  CHECK_THROWS_WITH(DataLoader({.rank = 2, .num_replicas = 2}, Counting{3}), ContainsSubstring("rank is 2"));
  CHECK_THROWS_WITH(DataLoader({.num_shards = 2}, Counting{3}), ContainsSubstring("num_shards"));
  CHECK_THROWS_WITH(DataLoader({.on_error = shoal::OnError::replace}, Counting{3}), ContainsSubstring("replace"));
  CHECK_THROWS_WITH(DataLoader({.num_replicas = 2}, Numbers{3}), ContainsSubstring("DistributedSampler"));
}
