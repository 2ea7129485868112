// What ranks give in tests of collectives tells ranks and places apart.
#include "tests/workers/train/numbers.h"

#include <ATen/ATen.h>

#include "tests/support/catch.h"

using namespace shoal::test;

TEST_CASE("numbers: no two ranks give the same, and none the same from one place on as from another") {
  constexpr int kRanks = 12;
  for (const at::ScalarType type : {at::kLong, at::kBool, at::kBFloat16})
    for (const int values : {2, 5})
      for (int rank = 0; rank < kRanks; ++rank) {
        INFO(c10::toString(type) << ", " << values << " values, rank " << rank);
        const at::Tensor own = numbers_of(rank, 100'000, type, 3, values);
        REQUIRE(own.numel() == kPeriod);
        for (int other = 0; other < rank; ++other)
          CHECK_FALSE(at::equal(own, numbers_of(other, kPeriod, type, 3, values)));
        for (std::int64_t shift = 1; shift < kPeriod; ++shift) CHECK_FALSE(at::equal(own, own.roll(shift)));
        CHECK(at::equal(repeated(own, 1000).narrow(0, 3 * kPeriod, 1000 - 3 * kPeriod),
                        own.narrow(0, 0, 1000 - 3 * kPeriod)));
      }
  // Also where there is one element each.
  for (int rank = 1; rank < 5; ++rank)
    CHECK_FALSE(at::equal(numbers_of(rank, 1, at::kLong, 0), numbers_of(rank - 1, 1, at::kLong, 0)));
}
