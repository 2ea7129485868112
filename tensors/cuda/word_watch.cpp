#include <shoal/internal/tensors/cuda/word_watch.h>

#include <shoal/internal/ipc/fork/service_thread.h>
#include <shoal/internal/ipc/process/session.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <utility>

namespace shoal {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

WordWatch::WordWatch() {
  start_service_thread("shoal-words", [this] { run(); });
}

/// Under the lock. What a wait keeps is kept by others, too, so nothing is freed here.
void WordWatch::prune() {
  // Asked after the word: one of a dead process may be there because somebody else has raised it.
  std::erase_if(waits_, [](const Wait& each) { return is_over(each) && Session::current().is_alive(each.producer); });
}

WordWatch::Answer WordWatch::add(StreamName stream, Word word, std::uint64_t value, ProcessTag producer,
                                 std::shared_ptr<void> keep, std::size_t most) {
  std::lock_guard lock(mutex_);
  prune();
  std::vector<StreamName> others;
  for (Wait& each : waits_) {
    if (each.stream == stream && each.word == word) {
      each.value = std::max(each.value, value);
      return Answer::kQueue;
    }
    if (each.stream == stream || each.word.has(each.value)) continue;
    if (std::ranges::find(others, each.stream) == others.end()) others.push_back(each.stream);
  }
  if (others.size() >= most) return Answer::kTooMany;
  waits_.push_back({stream, word, value, producer, std::move(keep), kLooksAtTheDead});
  changed_.notify_one();
  return Answer::kQueue;
}

void WordWatch::wait_here(Word word, std::uint64_t value, ProcessTag producer) {
  using std::chrono::microseconds;
  microseconds nap{10};
  for (auto look_at = std::chrono::steady_clock::now() + kLookEvery; !word.has(value);) {
    std::this_thread::sleep_for(nap);  // a device wakes nobody
    nap = std::min(2 * nap, microseconds{500});
    if (const auto now = std::chrono::steady_clock::now(); now >= look_at) {
      if (!Session::current().is_alive(producer)) return;
      look_at = now + kLookEvery;
    }
  }
}

std::vector<WordWatch::Awaited> WordWatch::awaited_by(StreamName stream, ProcessTag self) {
  std::vector<Awaited> result;
  std::lock_guard lock(mutex_);
  for (const Wait& each : waits_)
    if (each.stream == stream && each.producer != self && !each.word.has(each.value) &&
        each.looks_left == kLooksAtTheDead)
      result.push_back({each.word, each.value, each.keep});
  return result;
}

std::size_t WordWatch::waits() {
  std::lock_guard lock(mutex_);
  prune();
  return waits_.size();
}

void WordWatch::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !waits_.empty(); });
    look();
    changed_.wait_for(lock, kLookEvery, [] { return false; });  // a new wait is looked at soon enough
  }
}

/// Under the lock. To ask whether a process lives takes microseconds.
void WordWatch::look() {
  prune();
  std::unordered_map<std::uint32_t, bool> alive;
  for (Wait& each : waits_) {
    auto [entry, is_new] = alive.try_emplace(each.producer.word(), true);
    if (is_new) entry->second = Session::current().is_alive(each.producer);
    if (entry->second) continue;
    each.word.raise(each.value);
    --each.looks_left;
  }
  std::erase_if(waits_, [](const Wait& each) { return each.looks_left == 0; });
}

}  // namespace shoal
