#include <shoal/internal/workers/train/hosts/failure_board.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace shoal {

struct FailureBoard::Layout {
  enum State : std::uint32_t { kNone = 0, kBeingWritten = 1, kThere = 2 };
  static constexpr std::size_t kLongest = 1000;

  std::atomic<std::uint32_t> state;
  std::uint32_t kind;
  char text[kLongest + 1];
};

struct FailureBoard::RankWords {
  std::atomic<std::uint32_t> tag, left, awaited;  // awaited: plus 1
};

namespace {
constexpr std::size_t kLayoutBytes = 1024;
}

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

bool FailureBoard::begin() {
  std::uint32_t none = Layout::kNone;
  // relaxed: it says who writes, and nothing is read by it.
  return layout().state.compare_exchange_strong(none, Layout::kBeingWritten, std::memory_order_relaxed);
}

void FailureBoard::end(const Failure& failure) {
  layout().kind = failure.kind;
  const std::size_t size = std::min(failure.text.size(), Layout::kLongest);
  std::memcpy(layout().text, failure.text.data(), size);
  layout().text[size] = 0;
  layout().state.store(Layout::kThere, std::memory_order_release);  // R1: the text; pairs with A1
}

bool FailureBoard::has_failed() const {
  return layout().state.load(std::memory_order_relaxed) != Layout::kNone;  // relaxed: nothing is read by it
}

std::optional<Failure> FailureBoard::read() const {
  if (!has_failed()) return std::nullopt;
  return wait();
}

Failure FailureBoard::wait() const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  // A1: pairs with R1. Whoever writes asks rank 0's store first, which takes 0.3 s at most.
  while (layout().state.load(std::memory_order_acquire) != Layout::kThere) {
    if (std::chrono::steady_clock::now() > until)
      return {Failure::died, "a rank of this host died while it told of a failure"};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {Failure::Kind(layout().kind), layout().text};
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
