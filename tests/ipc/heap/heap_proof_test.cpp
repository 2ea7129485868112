// What the heap promises in numbers: descriptors, mappings, and how much memory is lost between blocks.
#include <fmt/format.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/heap.h>
#include <shoal/ipc/heap_statistics.h>
#include <shoal/ipc/session.h>
#include <string.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <random>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/guard.h"
#include "tests/support/sanitized.h"

using namespace shoal;
using shoal::test::Forked;
using shoal::test::FreshProcess;
using shoal::test::kSanitized;
namespace fresh = shoal::test::fresh;
namespace fs = std::filesystem;

namespace {

constexpr int kSlow = kSanitized ? 10 : 1;

int count_descriptors() {
  return int(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

int count_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

/// Where processes leave blocks for each other.
struct Mailbox {
  std::atomic<int> state{0};  // 0 empty, 1 being written, 2 full, 3 being read
  HoldRef block;
};
constexpr int kBoxes = 64;

/// One process's day: blocks of 16 bytes to 32 MiB that live for moments, a while or most of the day. What sizes are
/// wanted changes from hour to hour. Every tenth block is given to another process, which frees it.
class Day {
 public:
  Day(int seed, Mailbox* boxes) : random_(std::uint32_t(seed)), boxes_(boxes) {}

  void hour(int number, int steps) {
    for (int i = 0; i < steps; ++i) {
      ++now_;
      for (; !ends_.empty() && ends_.begin()->first <= now_; ends_.erase(ends_.begin()))
        live_ -= ends_.begin()->second.size();
      const std::size_t size = next_size(number);
      // A process that has as much as it is meant to have waits until something has ended.
      if (live_ + size > kMost) continue;
      Hold block = allocate_shared(size);
      Mailbox& box = boxes_[random_() % kBoxes];
      exchange(box, random_() % 10 == 0 ? block.share() : Hold());
      live_ += size;
      ends_.emplace(now_ + next_life(), std::move(block));
    }
  }

 private:
  static constexpr std::size_t kMost = 1000u << 20;

  std::size_t next_size(int hour) {
    // Evenly over the powers of two of each kind. Small blocks are nearly all of the blocks, large ones most bytes;
    // every third hour wants fewer large ones.
    const double kind = std::uniform_real_distribution<double>()(random_);
    const double large = hour % 3 == 0 ? 0.008 : 0.01;
    auto [lowest, highest] = kind < large       ? std::pair{20.0, 26.0}
                             : kind < 5 * large ? std::pair{16.0, 20.0}
                                                : std::pair{4.0, 16.0};
    return std::size_t(std::exp2(std::uniform_real_distribution<double>(lowest, highest)(random_)));
  }
  std::uint64_t next_life() {
    const double kind = std::uniform_real_distribution<double>()(random_);
    const double mean = kind < 0.5 ? 100 : kind < 0.9 ? 5'000 : 50'000;
    return 1 + std::uint64_t(std::exponential_distribution<double>(1 / mean)(random_));
  }
  /// Takes what is in the box and lets it go; leaves `hold`, if there is one and the box is empty.
  void exchange(Mailbox& box, Hold hold) {
    int full = 2, empty = 0;
    if (box.state.compare_exchange_strong(full, 3)) {
      Hold::from_transit(box.block).release();
      box.state = 0;
    }
    if (!hold || !box.state.compare_exchange_strong(empty, 1)) return;
    box.block = std::move(hold).into_transit();
    box.state = 2;
  }

  std::mt19937 random_;
  Mailbox* boxes_;
  std::multimap<std::uint64_t, Hold> ends_;  // by the step at which it is let go
  std::uint64_t now_ = 0;
  std::size_t live_ = 0;
};

}  // namespace

TEST_CASE("heap: a million small blocks held at once take no descriptor and no mapping of their own") {
  const int descriptors = count_descriptors();
  [[maybe_unused]] const int mappings = count_mappings();
  std::vector<Hold> blocks;
  const int count = 1'000'000 / kSlow;
  blocks.reserve(std::size_t(count));
  for (int i = 0; i < count; ++i) {
    blocks.push_back(allocate_shared(48));
    ::memcpy(blocks.back().data(), &i, sizeof i);
  }
  CHECK(count_descriptors() <= descriptors);
  CHECK(count_descriptors() < 64);
  if (!kSanitized) {                          // a sanitizer maps memory of its own as it goes
    CHECK(count_mappings() <= mappings + 2);  // the vector's own memory may be one
    CHECK(count_mappings() < 100);
  }
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    int found;
    ::memcpy(&found, blocks[std::size_t(i)].data(), sizeof found);
    wrong += found != i;
  }
  CHECK(wrong == 0);
  CHECK(heap_statistics().blocks >= std::uint64_t(count));
}

TEST_CASE("body: a day of blocks", "[.]") {
  fresh::run([] {
    constexpr int kProcesses = 3, kHours = 24;
    const int steps = 20'000 * test::test_scale() / kSlow;
    Hold mail = allocate_shared(sizeof(Mailbox) * kBoxes);
    auto* boxes = reinterpret_cast<Mailbox*>(mail.data());
    for (int i = 0; i < kBoxes; ++i) new (&boxes[i]) Mailbox;
    Barrier hour_over(kProcesses + 1);
    std::vector<std::unique_ptr<Forked>> processes;
    for (int seed = 1; seed <= kProcesses; ++seed)
      processes.push_back(std::make_unique<Forked>([&, seed] {
        Day day(seed, boxes);
        for (int hour = 0; hour < kHours; ++hour) {
          day.hour(hour, steps);
          hour_over.wait();
          hour_over.wait();  // while the figures are read
        }
      }));
    for (int hour = 0; hour < kHours; ++hour) {
      hour_over.wait();
      const HeapStatistics now = heap_statistics();
      const double in_extents = double(now.committed_bytes - now.idle_bytes);
      fresh::say(fmt::format("{} {} {} {}", now.fragmentation(), 1 - double(now.bytes) / in_extents, now.bytes >> 20,
                             now.blocks));
      hour_over.wait();
    }
    for (auto& process : processes)
      if (process->join() != 0) throw Error("a process of the day failed");
  });
}

TEST_CASE("heap: a day of blocks of all sizes and lives in several processes leaves under a quarter unused") {
  // The high-water mark is a promise of its own: with what it keeps scaled to this load, all
  // that is committed and in no block counts as lost.
  FreshProcess process("body: a day of blocks", {{"SHOAL_KEEP_IDLE", "64M"}});
  double sum = 0, worst = 0, last = 0, sum_in_extents = 0, most = 0;
  int hours = 0;
  for (std::string line; !(line = process.read_line()).empty(); ++hours) {
    CAPTURE(line);
    double unused = 0, unused_in_extents = 0, mib = 0, blocks = 0;
    REQUIRE(std::sscanf(line.c_str(), "%lf %lf %lf %lf", &unused, &unused_in_extents, &mib, &blocks) == 4);
    last = unused;
    sum += unused;
    sum_in_extents += unused_in_extents;
    worst = std::max(worst, unused);
    most = std::max(most, mib);
  }
  CHECK(process.join() == 0);
  REQUIRE(hours == 24);
  fmt::print(
      "unused of what is committed: {:.1f} % on average, {:.1f} % at worst, {:.1f} % at the end; {:.1f} % of the "
      "extents in use; up to {} MiB in use\n",
      100 * sum / hours, 100 * worst, 100 * last, 100 * sum_in_extents / hours, most);
  CHECK(sum / hours < 0.25);
  CHECK(last < 0.25);
  CHECK(most > (kSanitized ? 100 : 1000));
}
