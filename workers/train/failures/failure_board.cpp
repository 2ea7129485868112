#include <shoal/internal/workers/train/failures/failure_board.h>

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/process/session_core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace shoal {

struct FailureBoard::Layout {
  static constexpr std::uint32_t kNone = 0, kThere = ~0u;
  static constexpr std::size_t kLongest = 1000;

  std::atomic<std::uint32_t> state;  // or the local rank of who writes, plus 1
  std::uint32_t kind;
  std::int32_t rank;
  char text[kLongest + 1];
};

struct FailureBoard::RankWords {
  std::atomic<std::uint32_t> tag, left, awaited;  // awaited: plus 1
};

namespace {
constexpr std::size_t kLayoutBytes = 1024;
/// Who tells may be stopped while it does.
constexpr std::chrono::seconds kLongestTelling{10};
}  // namespace

FailureBoard::Block FailureBoard::make(int ranks) {
  static_assert(sizeof(Layout) <= kLayoutBytes && sizeof(RankWords) <= 16);
  return Block((kLayoutBytes + std::size_t(ranks) * 16) / sizeof(std::uint64_t));
}

FailureBoard::FailureBoard(Block block, int local_rank) : block_(std::move(block)), local_rank_(local_rank) {}

FailureBoard::Layout& FailureBoard::layout() const { return *reinterpret_cast<Layout*>(block_.data()); }

FailureBoard::RankWords& FailureBoard::words(int local_rank) const {
  auto* begin = reinterpret_cast<std::byte*>(block_.data()) + kLayoutBytes;
  return *reinterpret_cast<RankWords*>(begin + std::size_t(local_rank) * 16);
}

// relaxed, below: the word says who writes; what is written is read after A1.
bool FailureBoard::begin() {
  std::uint32_t before = layout().state.load(std::memory_order_relaxed);
  if (before != Layout::kNone && !is_dead_writer(before)) return false;
  return layout().state.compare_exchange_strong(before, std::uint32_t(local_rank_ + 1), std::memory_order_relaxed);
}

bool FailureBoard::is_dead_writer(std::uint32_t state) const {
  return state != Layout::kNone && state != Layout::kThere &&
         !SessionCore::current().is_alive(ProcessTag::from_word(tag_of(int(state) - 1)));
}

void FailureBoard::end(const Failure& failure) {
  layout().kind = failure.kind;
  layout().rank = failure.rank;
  const std::size_t size = std::min(failure.text.size(), Layout::kLongest);
  std::memcpy(layout().text, failure.text.data(), size);
  layout().text[size] = 0;
  layout().state.store(Layout::kThere, std::memory_order_release);  // R1: the text; pairs with A1
}

void FailureBoard::give_up() {
  std::uint32_t mine = std::uint32_t(local_rank_ + 1);
  // relaxed: nothing was written
  layout().state.compare_exchange_strong(mine, Layout::kNone, std::memory_order_relaxed);
}

bool FailureBoard::has_failed() const {
  return layout().state.load(std::memory_order_relaxed) != Layout::kNone;  // relaxed: nothing is read by it
}

std::optional<Failure> FailureBoard::read() const {
  if (!has_failed()) return std::nullopt;
  return wait();
}

std::optional<Failure> FailureBoard::wait() const {
  const Deadline deadline = Deadline::after(kLongestTelling);
  for (;;) {
    const std::uint32_t state = layout().state.load(std::memory_order_acquire);  // A1: pairs with R1
    if (state == Layout::kThere) break;
    if (state == Layout::kNone || is_dead_writer(state)) return std::nullopt;
    // Whoever writes asks rank 0's store first; on a machine that is busy that takes what it takes.
    if (deadline.passed()) return Failure{Failure::died, "a rank of this host found a failure, and is stopped"};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Failure{Failure::Kind(layout().kind), layout().text, layout().rank};
}

// relaxed, all below: each word stands for itself, and who reads one too early reads it again.
void FailureBoard::enter(std::uint32_t tag) { words(local_rank_).tag.store(tag, std::memory_order_relaxed); }
void FailureBoard::leave() { words(local_rank_).left.store(1, std::memory_order_relaxed); }
void FailureBoard::wait_for(int rank) {
  words(local_rank_).awaited.store(std::uint32_t(rank + 1), std::memory_order_relaxed);
}
int FailureBoard::awaited_by(int local_rank) const {
  return int(words(local_rank).awaited.load(std::memory_order_relaxed)) - 1;
}
std::uint32_t FailureBoard::tag_of(int local_rank) const {
  return words(local_rank).tag.load(std::memory_order_relaxed);
}
bool FailureBoard::has_left(int local_rank) const {
  return words(local_rank).left.load(std::memory_order_relaxed) != 0;
}

}  // namespace shoal
