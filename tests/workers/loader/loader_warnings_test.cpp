// DataLoader: what it says of options by which there is nothing to load.
#include <shoal/workers/data/data_loader.h>

#include <cstdint>
#include <optional>

#include "tests/support/catch.h"
#include "tests/support/said.h"
#include "tests/workers/loader/loader_fixtures.h"

using shoal::test::said_by;

namespace {

/// A stream that says its size.
struct SevenNumbers {
  struct Stream {
    std::int64_t at = 0;
    std::optional<std::int64_t> next() { return at == 7 ? std::nullopt : std::optional(at++); }
  };
  std::int64_t size() const { return 7; }
  Stream stream() const { return {}; }
};

}  // namespace

TEST_CASE("DataLoader: it warns of a batch that is larger than the data with drop_last, and of no other") {
  const auto numbers = [](std::int64_t batch_size, bool drop_last) {
    return said_by([=] { DataLoader loader({.batch_size = batch_size, .drop_last = drop_last}, Numbers{7}); });
  };
  CHECK_THAT(numbers(8, true), ContainsSubstring("there is no batch: batch_size is 8, an epoch has 7 samples") &&
                                   ContainsSubstring("drop_last = false"));
  CHECK(numbers(7, true).empty());
  CHECK(numbers(8, false).empty());
  const auto streamed = [](std::int64_t batch_size, bool drop_last) {
    return said_by([=] {
      DataLoader loader({.batch_size = batch_size, .drop_last = drop_last, .rank = 1, .num_replicas = 2},
                        SevenNumbers{});
    });
  };
  CHECK_THAT(streamed(4, true), ContainsSubstring("batch_size is 4 in each of 2 ranks, the data set has 7 samples"));
  CHECK(streamed(3, true).empty());
  CHECK(streamed(4, false).empty());
}

TEST_CASE("DataLoader: a batch larger than the data is one short batch without drop_last") {
  for (const int workers : {0, 1}) {
    DataLoader loader({.batch_size = 8, .num_workers = workers}, Numbers{7});
    CHECK(loader.size() == 1);
    CHECK(flat(one_epoch(loader)) == counting(7));
  }
}
