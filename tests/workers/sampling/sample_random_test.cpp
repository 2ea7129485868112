#include <shoal/workers/data/sample_random.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using shoal::SampleKey;
using shoal::SampleRandom;
using Words = std::array<std::uint32_t, 4>;

// Random123's kat_vectors, "philox4x32 10".
static_assert(shoal::philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(shoal::philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(shoal::philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
static_assert(std::uniform_random_bit_generator<SampleRandom>);

TEST_CASE("sample random: the generator is Random123's Philox, word for word") {
  // As above, at run time: what the compiler computes and what the processor does are the same.
  volatile std::uint32_t key = 0xa4093822;
  CHECK(shoal::philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {key, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("sample random: draws are the published ones, for ever") {
  // Whoever changes these numbers changes every augmented training that is resumed.
  SampleRandom random({.seed = 1, .epoch = 2, .index = 3}, 4);
  std::vector<std::uint32_t> words;
  for (int i = 0; i < 5; ++i) words.push_back(random.next());
  CHECK(words == std::vector<std::uint32_t>{0x56e36666, 0xcc5d929a, 0xbefe68fc, 0xdc6376ea, 0xa5f632c7});
  CHECK(shoal::mixed_bits(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF);  // splitmix64's first word of seed 0
}

TEST_CASE("sample random: the same four numbers give the same draws, any other one different ones") {
  const SampleKey key{7, 8, 9};
  auto first = [](SampleKey sample, std::uint64_t operation) { return SampleRandom(sample, operation).next64(); };
  CHECK(first(key, 1) == first(key, 1));
  const std::set<std::uint64_t> all = {first(key, 1),
                                       first(key, 2),
                                       first({8, 8, 9}, 1),
                                       first({7, 9, 9}, 1),
                                       first({7, 8, 10}, 1),
                                       first({7, 8 + (std::uint64_t{1} << 32U), 9}, 1),
                                       first({7, 8, 9 + (std::uint64_t{1} << 32U)}, 1)};
  CHECK(all.size() == 7);
}

TEST_CASE("sample random: neighbouring samples, epochs, seeds and operations share no draw") {
  std::set<std::uint64_t> seen;
  std::size_t drawn = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const std::uint64_t a = i % 10, b = i / 10 % 10, c = i / 100 % 10, d = i / 1000;
    SampleRandom random({a, b, c}, d);
    for (int k = 0; k < 3; ++k, ++drawn) seen.insert(random.next64());
  }
  CHECK(seen.size() == drawn);
}

TEST_CASE("sample random: uniform covers [0, 1), below(n) every number below n about equally often") {
  SampleRandom random({1, 1, 1});
  std::array<int, 10> tenths{};
  std::array<int, 7> sevenths{};
  for (int i = 0; i < 70'000; ++i) {
    const double value = random.uniform();
    REQUIRE(value >= 0);
    REQUIRE(value < 1);
    ++tenths[std::size_t(value * 10)];
    ++sevenths[std::size_t(random.below(7))];
  }
  // 5 standard deviations; the numbers are the same in every run.
  for (const int count : tenths) CHECK(std::abs(count - 7000) < 400);
  for (const int count : sevenths) CHECK(std::abs(count - 10'000) < 470);
  CHECK(random.below(1) == 0);
  CHECK(random.below(0) == 0);
  for (int i = 0; i < 100; ++i) {
    const double value = random.uniform(-2, 3);
    CHECK((value >= -2 && value < 3));
  }
  CHECK_FALSE(random.chance(0));
  CHECK(random.chance(1));
}

TEST_CASE("sample random: below() of a huge range stays below it") {
  SampleRandom random({1, 2, 3});
  const std::int64_t n = (std::int64_t{1} << 62U) + 1;
  std::int64_t largest = 0;
  for (int i = 0; i < 100; ++i) largest = std::max(largest, random.below(n));
  CHECK(largest < n);
  CHECK(largest > n / 2);
}

TEST_CASE("sample random: a scope says seed and epoch, of its thread alone, and ends") {
  CHECK(shoal::sample_key(5) == SampleKey{0, 0, 5});
  {
    const shoal::EpochScope outer(3, 4);
    CHECK(shoal::sample_key(5) == SampleKey{3, 4, 5});
    {
      const shoal::EpochScope inner(6, 7);
      CHECK(shoal::sample_key(1) == SampleKey{6, 7, 1});
    }
    CHECK(shoal::sample_key(5) == SampleKey{3, 4, 5});
    SampleKey elsewhere;
    std::thread([&] { elsewhere = shoal::sample_key(5); }).join();
    CHECK(elsewhere == SampleKey{0, 0, 5});
  }
  CHECK(shoal::sample_key(5) == SampleKey{0, 0, 5});
}

TEST_CASE("sample random: operations inside of operations are all different") {
  std::set<std::uint64_t> operations;
  for (std::uint64_t outer = 0; outer < 30; ++outer) {
    operations.insert(shoal::inner_operation(0, outer));
    for (std::uint64_t inner = 0; inner < 30; ++inner) {
      operations.insert(shoal::inner_operation(shoal::inner_operation(0, outer), inner));
    }
  }
  CHECK(operations.size() == 30 + 900);
}
