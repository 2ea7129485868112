// The ring's algorithm by itself, in threads: run under TSan too.
#include <shoal/internal/ipc/ring/core.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/guard.h"

using namespace shoal;

namespace {

struct Cells {
  std::atomic<std::uint64_t>* states;
  std::atomic<std::uint64_t>& operator()(std::uint32_t index) const { return states[index]; }
};
using Core = RingCore<std::atomic, Cells>;

/// A ring of numbers in this process's own memory.
struct NumberRing {
  NumberRing(std::uint32_t capacity, std::uint64_t first_lap) : states(capacity), values(capacity) {
    tail = head = RingTicket::make(first_lap, 0).word;
    for (auto& state : states) state = CellState::make(CellState::kEmpty, 0, first_lap).word;
  }
  Core core() { return Core(tail, head, Cells{states.data()}, std::uint32_t(states.size())); }
  bool put(std::uint64_t value, std::uint32_t slot = 1) {
    RingTicket ticket;
    CellState state;
    if (core().claim(slot, ticket, state) != Core::Outcome::kClaimed) return false;
    values[ticket.index()] = value;
    core().publish(ticket);
    return true;
  }
  bool get(std::uint64_t& value, std::uint32_t slot = 1) {
    RingTicket ticket;
    CellState state;
    if (core().take(slot, ticket, state) != Core::Outcome::kClaimed) return false;
    value = values[ticket.index()];
    core().release(ticket);
    return true;
  }

  std::atomic<std::uint64_t> tail, head;
  std::vector<std::atomic<std::uint64_t>> states;
  std::vector<std::uint64_t> values;
};

constexpr std::uint64_t kLastLaps = RingTicket::Lap::kMost - 2;  // three laps before the counters wrap

}  // namespace

TEST_CASE("ring core: first in, first out, exactly `capacity` fit, also across the wrap-around of laps") {
  const std::uint32_t capacity = GENERATE(1u, 2u, 3u, 7u, 64u);
  const std::uint64_t first_lap = GENERATE(std::uint64_t(0), kLastLaps);
  NumberRing ring(capacity, first_lap);
  std::uint64_t put = 0, got = 0, value;
  for (int lap = 0; lap < 10; ++lap) {
    while (ring.put(put)) ++put;
    CHECK(put - got == capacity);
    for (std::uint32_t i = 0; i < (capacity + 1) / 2; ++i) {
      REQUIRE(ring.get(value));
      CHECK(value == got++);
    }
  }
  while (ring.get(value)) CHECK(value == got++);
  CHECK(put == got);
}

TEST_CASE("ring core: every message arrives once and each producer's in order, with many of both") {
  const std::uint32_t capacity = GENERATE(1u, 3u, 16u);
  const std::uint64_t first_lap = GENERATE(std::uint64_t(0), kLastLaps);
  const int producers = 3, consumers = 3;
  // Fewer through few cells: each message then costs turns of other threads, which are long on a machine that is busy.
  const std::uint64_t each = std::min(3000u, 200 * capacity) * test::test_scale();
  NumberRing ring(capacity, first_lap);
  std::vector<std::vector<std::uint64_t>> got(consumers);
  std::atomic<std::uint64_t> left{producers * each};
  std::vector<std::thread> threads;
  for (int p = 0; p < producers; ++p)
    threads.emplace_back([&, p] {
      for (std::uint64_t i = 0; i < each; ++i)
        while (!ring.put(std::uint64_t(p) << 32 | i, std::uint32_t(p))) std::this_thread::yield();
    });
  for (int c = 0; c < consumers; ++c)
    threads.emplace_back([&, c] {
      std::uint64_t value;
      while (left > 0)
        if (ring.get(value, 10 + std::uint32_t(c))) {
          got[c].push_back(value);
          --left;
        } else {
          std::this_thread::yield();
        }
    });
  for (auto& thread : threads) thread.join();
  std::vector<std::uint64_t> seen(producers, 0);
  for (auto& list : got) {
    std::vector<std::int64_t> last(producers, -1);
    for (std::uint64_t value : list) {
      auto producer = value >> 32;
      std::int64_t number = std::int64_t(value & 0xffffffff);
      REQUIRE(number > last[producer]);
      last[producer] = number;
      ++seen[producer];
    }
  }
  for (auto count : seen) CHECK(count == each);
}

TEST_CASE("ring core: a cell that its writer left claimed blocks the getters until somebody steals it") {
  NumberRing ring(4, 0);
  RingTicket ticket;
  CellState state;
  REQUIRE(ring.core().claim(7, ticket, state) == Core::Outcome::kClaimed);  // and dies
  REQUIRE(ring.put(1));
  std::uint64_t value;
  CHECK_FALSE(ring.get(value));
  REQUIRE(ring.core().take(2, ticket, state) == Core::Outcome::kBlocked);
  CHECK(state.phase() == CellState::kClaimed);
  CHECK(state.slot() == 7);
  REQUIRE(ring.core().steal(0, state, 2));
  CHECK_FALSE(ring.core().steal(0, state, 3));  // only one may
  ring.values[0] = 99;
  ring.core().publish(RingTicket{0});
  REQUIRE(ring.get(value));
  CHECK(value == 99);
  REQUIRE(ring.get(value));
  CHECK(value == 1);
}

TEST_CASE("ring core: a hint left behind by a dead process is helped on by the next") {
  NumberRing ring(4, 0);
  REQUIRE(ring.put(5));
  ring.tail = 0;  // as if it died between the cell's CAS and the hint's
  REQUIRE(ring.put(6));
  std::uint64_t value;
  REQUIRE(ring.get(value));
  ring.head = 0;
  REQUIRE(ring.get(value));
  CHECK(value == 6);
}

TEST_CASE("ring core: a hint that a late claimant set back by any number of laps is helped on at once") {
  // By steps of one ticket this would take longer than the watchdog waits.
  const std::uint32_t capacity = GENERATE(1u, 3u, 4u);
  NumberRing ring(capacity, std::uint64_t(1) << 38);
  std::uint64_t value;
  for (std::uint64_t i = 0; i < 2 * capacity + 1; ++i) {
    REQUIRE(ring.put(i));
    REQUIRE(ring.get(value));
  }
  const std::uint64_t tail = ring.tail, head = ring.head;
  ring.tail = ring.head = capacity - 1;
  CellState state;
  CHECK(ring.core().newest().word == tail);
  CHECK(ring.core().oldest(state).word == head);
  ring.tail = ring.head = 0;
  REQUIRE(ring.put(77));
  REQUIRE(ring.get(value));
  CHECK(value == 77);
  CHECK_FALSE(ring.get(value));
}

TEST_CASE("ring core: tickets know how far they are from each other, across laps and their wrap-around") {
  RingTicket first{7};
  RingTicket later = first;
  for (int i = 0; i < 20; ++i) later = later.next(9);
  CHECK(first.distance_to(later, 9) == 20);
  CHECK(later.distance_to(first, 9) == -20);
  RingTicket last = RingTicket::make(RingTicket::Lap::kMost, 8);
  CHECK(last.distance_to(last.next(9), 9) == 1);
}
