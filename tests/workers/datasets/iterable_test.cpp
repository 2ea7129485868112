#include <shoal/workers/data/data_loader.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/datasets/chain_dataset.h>
#include <shoal/workers/datasets/shard_stream.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using shoal::Shard;
using shoal::ShardStream;

namespace {

using Numbers = std::vector<std::int64_t>;

struct Count {  // 0, 1, ..., size - 1, as a stream that can't skip
  std::int64_t size_;
  struct Stream {
    std::int64_t at, end;
    std::optional<std::int64_t> next() { return at < end ? std::optional(at++) : std::nullopt; }
  };
  Stream stream() { return {0, size_}; }
};
struct SkippingCount {  // the same, and it notes how much was made and passed over
  std::int64_t size_;
  std::int64_t made = 0, passed = 0;
  struct Stream {
    SkippingCount* owner;
    std::int64_t at = 0;
    std::optional<std::int64_t> next() {
      if (at >= owner->size_) return std::nullopt;
      ++owner->made;
      return at++;
    }
    std::int64_t skip(std::int64_t count) {
      count = std::min(count, owner->size_ - at);
      at += count;
      owner->passed += count;
      return count;
    }
  };
  Stream stream() { return {this}; }
};
struct Files {  // deals out itself: file f belongs to reader f % count
  std::vector<Numbers> files;
  struct Stream {
    const std::vector<Numbers>* files;
    Shard shard;
    std::size_t file, line = 0;
    std::optional<std::int64_t> next() {
      for (; file < files->size(); file += std::size_t(shard.count), line = 0) {
        if (line < (*files)[file].size()) return (*files)[file][line++];
      }
      return std::nullopt;
    }
  };
  Stream stream(const Shard& shard) const { return {&files, shard, std::size_t(shard.index)}; }
};
struct Log {  // first, first + 1, first + 2, or none
  std::int64_t first;
  bool is_there;
  struct Stream {
    Numbers lines;  // what cannot be moved for nothing
    std::size_t at = 0;
    std::optional<std::int64_t> next() { return at < lines.size() ? std::optional(lines[at++]) : std::nullopt; }
  };
  Stream stream() const {
    if (!is_there) throw std::runtime_error("the log is not there");
    return {{first, first + 1, first + 2}};
  }
};
struct Map {
  std::int64_t size() const { return 1; }
  std::int64_t get(std::int64_t) const { return 0; }
};

static_assert(shoal::IterableDataset<Count> && shoal::IterableDataset<Files>);
static_assert(shoal::IterableDataset<std::list<std::int64_t>> && shoal::IterableDataset<const std::vector<int>>);
static_assert(!shoal::IterableDataset<Map> && !shoal::IterableDataset<int>);
static_assert(std::same_as<ShardStream<std::list<float>>::Sample, float>);

template <class D>
Numbers read(D& dataset, const Shard& shard, std::int64_t skipped = 0) {
  ShardStream<D> stream(dataset, shard);
  CHECK(stream.skip(skipped) <= skipped);
  Numbers read;
  while (auto sample = stream.next()) read.push_back(*sample);
  CHECK_FALSE(stream.next().has_value());  // and it stays at its end
  return read;
}

Numbers up_to(std::int64_t size) {
  Numbers numbers;
  for (std::int64_t i = 0; i < size; ++i) numbers.push_back(i);
  return numbers;
}

template <class D>
void check_union(D dataset, const Numbers& whole) {
  for (const std::int64_t world : {1, 2, 3}) {
    for (const std::int64_t workers : {1, 2, 5}) {
      for (const std::int64_t block : {1, 4, 7}) {
        Numbers all;
        for (std::int64_t rank = 0; rank < world; ++rank) {
          for (std::int64_t worker = 0; worker < workers; ++worker) {
            const Numbers part = read(dataset, Shard::of(rank, world, worker, workers, block));
            all.insert(all.end(), part.begin(), part.end());
          }
        }
        std::ranges::sort(all);
        CHECK(all == whole);
      }
    }
  }
}

}  // namespace

TEST_CASE("iterable: all shards together are the data set, once, whatever their number and blocks") {
  for (const std::int64_t size : {0, 1, 4, 23, 64}) {
    check_union(Count{size}, up_to(size));
    check_union(SkippingCount{size}, up_to(size));
    const Numbers numbers = up_to(size);
    check_union(std::list<std::int64_t>(numbers.begin(), numbers.end()), numbers);
  }
  check_union(Files{{{0, 1, 2}, {}, {3}, {4, 5}, {6}}}, up_to(7));
}

TEST_CASE("iterable: blocks are dealt out one after the other") {
  Count dataset{10};
  CHECK(read(dataset, {.index = 0, .count = 2, .block = 3}) == Numbers{0, 1, 2, 6, 7, 8});
  CHECK(read(dataset, {.index = 1, .count = 2, .block = 3}) == Numbers{3, 4, 5, 9});
  CHECK(read(dataset, {.index = 3, .count = 4, .block = 3}) == Numbers{9});
}

TEST_CASE("iterable: the batches of a rank do not depend on its number of workers") {
  auto batches = [](std::int64_t workers) {
    Count dataset{50};
    std::vector<ShardStream<Count>> streams;
    for (std::int64_t worker = 0; worker < workers; ++worker) {
      streams.emplace_back(dataset, Shard::of(1, 2, worker, workers, 4));
    }
    std::vector<Numbers> batches;
    for (std::size_t worker = 0;; worker = (worker + 1) % std::size_t(workers)) {
      Numbers batch;
      while (batch.size() < 4) {
        auto sample = streams[worker].next();
        if (!sample) break;
        batch.push_back(*sample);
      }
      if (batch.empty()) return batches;
      batches.push_back(batch);
    }
  };
  CHECK(batches(1).size() == 6);
  CHECK(batches(2) == batches(1));
  CHECK(batches(7) == batches(1));
}

TEST_CASE("iterable: a stream that can skip makes only the samples of its shard") {
  SkippingCount dataset{1000};
  CHECK(read(dataset, {.index = 1, .count = 4, .block = 10}).size() == 250);
  CHECK(dataset.made == 250);
  CHECK(dataset.passed == 750);
}

TEST_CASE("iterable: skipping the first samples of a shard gives the rest of it") {
  Count dataset{40};
  SkippingCount skipping{40};
  std::vector<std::int64_t> range = up_to(40);
  Files files{{{0, 1, 2}, {3}, {4, 5}, {6}, {7, 8}}};
  const Shard shard{.index = 1, .count = 3, .block = 4};
  const Numbers whole = read(dataset, shard);
  CHECK(whole == Numbers{4, 5, 6, 7, 16, 17, 18, 19, 28, 29, 30, 31});
  for (std::size_t skipped = 0; skipped <= whole.size() + 2; ++skipped) {
    const std::size_t from = std::min(skipped, whole.size());
    const Numbers rest(whole.begin() + std::ptrdiff_t(from), whole.end());
    CHECK(read(dataset, shard, std::int64_t(skipped)) == rest);
    CHECK(read(skipping, shard, std::int64_t(skipped)) == rest);
    CHECK(read(range, shard, std::int64_t(skipped)) == rest);
  }
  CHECK(read(files, {.index = 0, .count = 2}, 4) == Numbers{5, 7, 8});
}

TEST_CASE("iterable: a sample's number is its place in the data set, or else no other shard's") {
  Count dataset{20};
  ShardStream<Count> stream(dataset, {.index = 1, .count = 2, .block = 3});
  Numbers indices;
  for (std::int64_t index = stream.index(); auto sample = stream.next(); index = stream.index()) {
    CHECK(index == *sample);
    indices.push_back(index);
  }
  CHECK(indices == Numbers{3, 4, 5, 9, 10, 11, 15, 16, 17});

  Files files{{{0, 1}, {2}, {3}}};
  Numbers numbers;
  for (std::int64_t shard = 0; shard < 2; ++shard) {
    ShardStream<Files> part(files, {.index = shard, .count = 2});
    for (std::int64_t index = part.index(); part.next(); index = part.index()) numbers.push_back(index);
  }
  std::ranges::sort(numbers);
  CHECK(numbers == Numbers{0, 1, 2, 4});
}

TEST_CASE("iterable: a shard that can't be is refused with its numbers") {
  Count dataset{3};
  CHECK_THROWS_WITH(Shard::of(2, 2, 0, 1), ContainsSubstring("rank 2 of 2"));
  CHECK_THROWS_WITH(Shard::of(0, 1, 0, 0), ContainsSubstring("worker 0 of 0"));
  CHECK_THROWS_WITH((ShardStream<Count>(dataset, {.index = 3, .count = 3})), ContainsSubstring("shard 3 of 3"));
  CHECK_THROWS_AS((ShardStream<Count>(dataset, {.index = 0, .count = 1, .block = 0})), std::invalid_argument);
}

TEST_CASE("iterable: of a chain a data set that cannot be opened takes one place, and the next ones follow") {
  const auto read_chain = [](std::vector<Log> logs, std::int64_t skipped) {
    auto chain = shoal::chain_datasets(std::move(logs));
    auto stream = chain.stream();
    CHECK(stream.skip(skipped) == skipped);
    Numbers numbers;
    for (;;) try {
        const auto sample = stream.next();
        if (!sample) break;
        numbers.push_back(*sample);
      } catch (const std::runtime_error&) {
        numbers.push_back(-1);
      }
    CHECK_FALSE(stream.next().has_value());
    return numbers;
  };
  const Numbers second_is_missing = {0, 1, 2, -1, 20, 21, 22}, first_is_missing = {-1, 0, 1, 2};
  for (std::size_t skipped = 0; skipped <= second_is_missing.size(); ++skipped)
    CHECK(read_chain({{0, true}, {10, false}, {20, true}}, std::int64_t(skipped)) ==
          Numbers(second_is_missing.begin() + std::ptrdiff_t(skipped), second_is_missing.end()));
  for (std::size_t skipped = 0; skipped <= first_is_missing.size(); ++skipped)
    CHECK(read_chain({{9, false}, {0, true}}, std::int64_t(skipped)) ==
          Numbers(first_is_missing.begin() + std::ptrdiff_t(skipped), first_is_missing.end()));
  CHECK(read_chain({{0, true}, {9, false}}, 0) == Numbers{0, 1, 2, -1});
  auto mixed = shoal::chain_datasets(Log{0, true}, Log{9, false}, Count{2});
  auto stream = mixed.stream();
  CHECK(stream.skip(3) == 3);
  CHECK_THROWS_WITH(stream.next(), ContainsSubstring("the log is not there"));
  CHECK(stream.next() == 0);
}

TEST_CASE("iterable: a loader that skips faults has all but the data set that cannot be opened, with any workers") {
  for (const int workers : {0, 2}) {
    shoal::DataLoader loader({.batch_size = 2, .num_workers = workers, .on_error = shoal::OnError::skip},
                             shoal::chain_datasets(std::vector<Log>{{0, true}, {10, false}, {20, true}}));
    Numbers numbers;
    for (const at::Tensor& batch : loader)
      for (std::int64_t i = 0; i < batch.size(0); ++i) numbers.push_back(batch[i].item<std::int64_t>());
    CHECK(numbers == Numbers{0, 1, 2, 20, 21, 22});
    REQUIRE(loader.report().faults.size() == 1);
    CHECK_THAT(loader.report().faults[0].message, ContainsSubstring("the log is not there"));
  }
}
