// Loops that go on behind batches that fail.
#include <ATen/ops/full.h>
#include <shoal/workers/data/data_loader.h>

#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/workers/loader/loader_fixtures.h"

namespace {

// Throws at these indices, each time.
struct Holed {
  std::int64_t count = 0;
  std::vector<std::int64_t> holes;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    for (const std::int64_t hole : holes)
      if (index == hole) throw std::out_of_range("no sample " + std::to_string(index));
    return at::full({1}, index, at::kLong);
  }
};

Holed all_holes(std::int64_t count) { return {count, counting(count)}; }

std::vector<std::int64_t> but(std::int64_t count, const std::set<std::int64_t>& without) {
  std::vector<std::int64_t> numbers;
  for (const std::int64_t number : counting(count))
    if (!without.contains(number)) numbers.push_back(number);
  return numbers;
}

}  // namespace

TEST_CASE("DataLoader: where an epoch's first batches fail, the next begin() goes on behind them") {
  const int workers = GENERATE(0, 2);
  for (const bool in_order : {true, false}) {
    DataLoader loader({.batch_size = 2, .num_workers = workers, .in_order = in_order}, Holed{10, {1, 2}});
    std::multiset<std::int64_t> seen;
    int failures = 0;
    std::optional<decltype(loader)::Iterator> it;
    const auto attempt = [&](auto&& step) {
      for (;;) try {
          return step();
        } catch (const std::exception&) {
          if (++failures > 2) throw;  // the same ones again
        }
    };
    for (attempt([&] { it.emplace(loader.begin()); }); *it != loader.end(); attempt([&] { ++*it; }))
      for (const std::int64_t number : first_column(**it)) seen.insert(number);
    CHECK(failures == 2);
    CHECK(seen == std::multiset<std::int64_t>{4, 5, 6, 7, 8, 9});
    it.reset();
    CHECK_THROWS(loader.begin());  // the next epoch
    if (in_order) {
      CHECK(loader.state_dict().epoch == 1);
      CHECK(loader.state_dict().place == 2);
    }
  }
}

TEST_CASE("DataLoader: set_epoch and load_state_dict give up an epoch whose first batch has failed") {
  const int workers = GENERATE(0, 1);
  DataLoader loader({.batch_size = 2, .num_workers = workers}, Holed{6, {0}});
  const shoal::LoaderState start = loader.state_dict();
  CHECK_THROWS(loader.begin());
  CHECK(loader.state_dict().place == 2);
  loader.set_epoch(0);  // the one that it is
  CHECK(flat(one_epoch(loader)) == but(6, {0, 1}));
  CHECK_THROWS(loader.begin());
  loader.set_epoch(7);
  CHECK_THROWS(loader.begin());  // from the beginning
  CHECK(loader.state_dict().epoch == 7);
  loader.load_state_dict(start);
  CHECK(loader.state_dict().place == 0);
  CHECK_THROWS(loader.begin());
  CHECK(loader.state_dict().epoch == 0);
}

TEST_CASE("DataLoader: a range-for over continuing() has all batches but those that fail, and hears of these") {
  const int workers = GENERATE(0, 2);
  DataLoader loader({.batch_size = 2, .num_workers = workers}, Holed{12, {0, 5, 6, 11}});
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::int64_t> seen;
    std::vector<std::string> heard;
    for (at::Tensor& batch : loader.continuing([&](const std::exception& error) { heard.emplace_back(error.what()); }))
      for (const std::int64_t number : first_column(batch)) seen.push_back(number);
    CHECK(seen == but(12, {0, 1, 4, 5, 6, 7, 10, 11}));
    REQUIRE(heard.size() == 4);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK_THAT(heard[i],
                 ContainsSubstring(std::vector{"no sample 0", "no sample 5", "no sample 6", "no sample 11"}[i]));
  }
  CHECK(loader.state_dict().epoch == 2);
}

TEST_CASE("DataLoader: continuing() ends by what its function throws, and when no batch comes any more") {
  const int workers = GENERATE(0, 2);
  DataLoader loader({.num_workers = workers}, all_holes(300));
  int heard = 0;
  auto give_up = loader.continuing([&](const std::exception&) {
    if (++heard == 3) throw std::runtime_error("enough");
  });
  CHECK_THROWS_WITH(give_up.begin(), "enough");
  CHECK(heard == 3);
  heard = 0;
  loader.set_epoch(1);
  auto hopeless = loader.continuing([&](const std::exception&) { ++heard; });
  CHECK_THROWS_WITH(hopeless.begin(), ContainsSubstring("no sample 99"));
  CHECK(heard == 99);
}

TEST_CASE("DataLoader: continuing() does not swallow the end of the workers") {
  DataLoader loader({.num_workers = 1, .max_retries = 0, .max_replacements = 0}, Faulty{20, 3, "kill"});
  int heard = 0;
  std::vector<std::int64_t> seen;
  const auto loop = [&] {
    for (at::Tensor& batch : loader.continuing([&](const std::exception&) { ++heard; }))
      seen.push_back(batch.item<std::int64_t>());
  };
  CHECK_THROWS_AS(loop(), shoal::PoolStopped);
  CHECK(heard <= 1);  // the batch itself
  CHECK(seen == counting(3));
}
