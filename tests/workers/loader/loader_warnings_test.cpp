// DataLoader: what it says of options by which there is nothing to load.
#include <shoal/workers/data/data_loader.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/workers/loader/loader_fixtures.h"

using shoal::test::Forked;

namespace {

/// What a process says on stderr.
std::string warnings_of(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  Forked child([&] {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    ::unsetenv("SHOAL_LOG");
    body();
  });
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> bytes{};
  for (ssize_t got; (got = ::read(ends[0], bytes.data(), bytes.size())) > 0;)
    text.append(bytes.data(), std::size_t(got));
  ::close(ends[0]);
  CHECK(child.join() == 0);
  return text;
}

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
    return warnings_of([=] { DataLoader loader({.batch_size = batch_size, .drop_last = drop_last}, Numbers{7}); });
  };
  CHECK_THAT(numbers(8, true), ContainsSubstring("there is no batch: batch_size is 8, an epoch has 7 samples") &&
                                   ContainsSubstring("drop_last = false"));
  CHECK(numbers(7, true).empty());
  CHECK(numbers(8, false).empty());
  const auto streamed = [](std::int64_t batch_size, bool drop_last) {
    return warnings_of([=] {
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
