// Imap: the results of a function over a range, as they come.
#pragma once

#include <shoal/internal/workers/pool/ahead_window.h>
#include <shoal/internal/workers/pool/map_parts.h>
#include <shoal/ipc/error.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

namespace shoal {

/// How a range of results is computed.
struct ImapOptions {
  std::size_t chunksize = 1;  ///< elements that a worker gets at a time
  std::size_t prefetch = 0;   ///< chunks that workers make ahead of the consumer. 0: 16 for each worker
};

namespace detail {

/// The range that Pool::imap and imap_unordered return: one thread passes over it once.
///
/// - It reads the input at most `prefetch` chunks ahead and keeps no more results than that, so the input may be
///   endless.
/// - An element whose function threw throws when its turn comes; the others can still be had, but for those of the same
///   chunk (ImapOptions::chunksize): none of these has a result.
/// - If reading the input throws, that exception comes once, after the results of all elements before, and ends the
///   range.
/// - If it is destroyed before its end, elements that no worker has begun are given up. A ThreadPool's waits for the
///   tasks that run, since these may use what the function captured by reference.
template <class Jobs, class F, std::ranges::view View>
class Imap {
  using Core = typename Jobs::Core;
  using Element = std::ranges::range_value_t<View>;
  using OneJob = typename Jobs::template Map<Spread::kWhole, F, Element>;

 public:
  /// What the function returns. If that is void, std::tuple<>, one for each element that is done.
  using Result = StoredResult<typename OneJob::Result>;

  Imap(std::shared_ptr<Core> core, Order order, const ImapOptions& options, F function, View input)
      : core_(std::move(core)),
        asked_(core_, order),
        function_(std::move(function)),
        input_(std::make_unique<View>(std::move(input))),
        chunk_(options.chunksize),
        ahead_(options.prefetch != 0 ? options.prefetch : 16 * std::size_t(core_->size())) {
    ask_ahead();
  }
  Imap(const Imap&) = delete;
  Imap(Imap&&) = default;
  ~Imap() {
    if (core_) asked_.leave();
  }

  /// The next result; nothing after the last one. Throws like AsyncResult::get().
  std::optional<Result> next() { return next_until(Deadline::never()); }
  /// Like next(); throws TimeoutError after `timeout`, and the next call can still return the result.
  std::optional<Result> next(std::chrono::nanoseconds timeout) { return next_until(Deadline::after(timeout)); }

  class Iterator {
   public:
    using value_type = Result;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Result& operator*() const { return *owner_->current_; }
    Iterator& operator++() {
      owner_->current_ = owner_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !owner_->current_; }

   private:
    friend class Imap;
    explicit Iterator(Imap* owner) : owner_(owner) {}
    Imap* owner_ = nullptr;
  };
  Iterator begin() {
    current_ = next();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  void ask_ahead() {
    asked_.fill(ahead_, [&]() -> std::shared_ptr<OneJob> {
      if (ended_) return nullptr;
      std::vector<Element> elements = read_chunk();
      if (elements.empty()) return nullptr;
      return std::make_shared<OneJob>(function_, std::move(elements), chunk_);
    });
  }

  /// Reads the input's next elements; fewer than a chunk, or none, at its end.
  std::vector<Element> read_chunk() {
    std::vector<Element> elements;
    try {
      if (!next_) next_.emplace(std::ranges::begin(*input_));  // a generator's first step, which may throw
      for (; elements.size() < chunk_ && *next_ != std::ranges::end(*input_); ++*next_) elements.push_back(**next_);
      ended_ = elements.size() < chunk_;
    } catch (...) {
      end_by(std::current_exception());
    }
    return elements;
  }
  void end_by(std::exception_ptr error) {
    ended_ = true;
    error_ = std::move(error);
  }

  std::optional<Result> next_until(Deadline deadline) {
    while (taken_ == results_.size()) {
      if (asked_.empty()) {
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
        return std::nullopt;
      }
      const std::shared_ptr<OneJob> job = asked_.take(deadline);
      if (!job) throw TimeoutError("Imap::next: no result was there within the timeout; it goes on");
      results_.clear();
      taken_ = 0;
      try {
        ask_ahead();
      } catch (...) {  // the pool takes no more tasks; those that it has taken still have results
        end_by(std::current_exception());
      }
      const auto lock = core_->lock();
      if (job->error()) std::rethrow_exception(job->error());
      results_ = job->take_results();
    }
    return std::optional<Result>(std::move(results_[taken_++]));
  }

  std::shared_ptr<Core> core_;
  AheadWindow<Core, OneJob> asked_;
  F function_;
  std::unique_ptr<View> input_;  // does not move when this object does
  std::optional<std::ranges::iterator_t<View>> next_;
  bool ended_ = false;        // nothing more is read from the input
  std::exception_ptr error_;  // the exception that ended it, until it was thrown
  std::size_t chunk_, ahead_;
  std::vector<Result> results_;
  std::size_t taken_ = 0;
  std::optional<Result> current_;
};

}  // namespace detail
}  // namespace shoal
