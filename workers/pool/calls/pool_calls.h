// The calls that all kinds of pools have.
#pragma once

#include <shoal/internal/workers/pool/host.h>
#include <shoal/workers/async_result.h>
#include <shoal/workers/imap.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <ranges>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal {

/// How map() and its kin deal out a range.
struct MapOptions {
  /// Elements that a worker gets at a time. 0: as many as give each worker four chunks.
  std::size_t chunksize = 0;
};

namespace detail {

/// The calls that Pool and ThreadPool share. `Jobs` says where tasks run: Core, a Host that takes Call and Map, its
/// requests. Threads: any, at once.
template <class Jobs>
class PoolCalls {
 public:
  using Core = typename Jobs::Core;

  /// The number of workers.
  int size() const { return core_->size(); }

  /// Has a worker call function(arguments...) and returns its result.
  template <class F, class... Args>
  auto apply(F function, Args&&... arguments) {
    return call(Awaited::kNow, function, std::forward<Args>(arguments)...).once().get();
  }
  /// Has a worker call function(arguments...) and returns an AsyncResult at once. Do not change the arguments until the
  /// result is there.
  template <class F, class... Args>
  auto apply_async(F function, Args&&... arguments) {
    return call(Awaited::kLater, function, std::forward<Args>(arguments)...);
  }

  /// Has the workers call function(element) for each element of a range. Returns a vector of the results in the order
  /// of the elements. If a call throws, the rest of its chunk is not called; all other chunks are, and then map() throws
  /// the exception of the first element that threw. With `chunksize` = 1 all others are called.
  template <class F, std::ranges::input_range Range>
  auto map(F function, Range&& elements) {
    return map(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  /// map() with options.
  template <class F, std::ranges::input_range Range>
  auto map(const MapOptions& options, F function, Range&& elements) {
    return start_map<Spread::kWhole>(Awaited::kNow, options, std::move(function), std::forward<Range>(elements))
        .once()
        .get();
  }
  /// Starts a map() and returns an AsyncResult of the vector at once.
  template <class F, std::ranges::input_range Range>
  auto map_async(F function, Range&& elements) {
    return map_async(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  /// map_async() with options.
  template <class F, std::ranges::input_range Range>
  auto map_async(const MapOptions& options, F function, Range&& elements) {
    return start_map<Spread::kWhole>(Awaited::kLater, options, std::move(function), std::forward<Range>(elements));
  }

  /// Like map(), for elements that are tuples or pairs: calls function(members of the element...).
  template <class F, std::ranges::input_range Range>
  auto starmap(F function, Range&& elements) {
    return starmap(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  /// starmap() with options.
  template <class F, std::ranges::input_range Range>
  auto starmap(const MapOptions& options, F function, Range&& elements) {
    return start_map<Spread::kTuple>(Awaited::kNow, options, std::move(function), std::forward<Range>(elements))
        .once()
        .get();
  }
  /// Starts a starmap() and returns an AsyncResult of the vector at once.
  template <class F, std::ranges::input_range Range>
  auto starmap_async(F function, Range&& elements) {
    return starmap_async(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  /// starmap_async() with options.
  template <class F, std::ranges::input_range Range>
  auto starmap_async(const MapOptions& options, F function, Range&& elements) {
    return start_map<Spread::kTuple>(Awaited::kLater, options, std::move(function), std::forward<Range>(elements));
  }

  /// A range of the results as they come, in the order of the elements; see Imap. If `elements` is given by reference,
  /// it has to outlive the range.
  template <class F, std::ranges::input_range Range>
  auto imap(F function, Range&& elements) {
    return imap(ImapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  /// imap() with options.
  template <class F, std::ranges::input_range Range>
  auto imap(const ImapOptions& options, F function, Range&& elements) {
    return start_imap(Order::kOfInput, options, std::move(function), std::forward<Range>(elements));
  }
  /// Like imap(), but the results come in the order in which they are ready.
  template <class F, std::ranges::input_range Range>
  auto imap_unordered(F function, Range&& elements) {
    return imap_unordered(ImapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  /// imap_unordered() with options.
  template <class F, std::ranges::input_range Range>
  auto imap_unordered(const ImapOptions& options, F function, Range&& elements) {
    return start_imap(Order::kOfCompletion, options, std::move(function), std::forward<Range>(elements));
  }

  /// Takes no more tasks. The workers finish those that were given, and then end.
  void close() { core_->close(); }
  /// Ends the workers now (threads: after the tasks that they run). Tasks without a result fail with PoolStopped.
  void terminate() { core_->terminate(); }
  /// Waits until the workers have ended; to be called after close() or terminate().
  void join() { core_->join(Deadline::never()); }
  /// Like join(); returns false if they have not ended after `timeout`.
  bool join(std::chrono::nanoseconds timeout) { return core_->join(Deadline::after(timeout)); }

 protected:
  explicit PoolCalls(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  PoolCalls(const PoolCalls&) = delete;
  PoolCalls(PoolCalls&&) = default;
  ~PoolCalls() = default;

  const std::shared_ptr<Core>& core() const { return core_; }

 private:
  template <class F, class... Args>
  auto call(Awaited awaited, F function, Args&&... arguments) {
    using Job = typename Jobs::template Call<F, std::decay_t<Args>...>;
    using R = typename Job::Result;
    auto job = std::make_shared<Job>(std::move(function), std::forward<Args>(arguments)...);
    core_->submit(job, awaited);
    return AsyncResult<R>(core_, std::move(job),
                          [](Request& it) -> StoredResult<R> { return std::move(static_cast<Job&>(it).result()); });
  }

  template <Spread kSpread, class F, class Range>
  auto start_map(Awaited awaited, const MapOptions& options, F function, Range&& range) {
    using Element = std::ranges::range_value_t<Range>;
    using Job = typename Jobs::template Map<kSpread, F, Element>;
    std::vector<Element> elements;
    if constexpr (std::is_same_v<std::remove_cvref_t<Range>, std::vector<Element>>)
      elements = std::forward<Range>(range);
    else
      for (auto&& element : range) elements.push_back(std::forward<decltype(element)>(element));
    std::size_t chunk = options.chunksize;
    const std::size_t pieces = 4 * std::size_t(core_->size());
    if (chunk == 0) chunk = std::max<std::size_t>(1, (elements.size() + pieces - 1) / pieces);
    auto job = std::make_shared<Job>(std::move(function), std::move(elements), chunk);
    core_->submit(job, awaited);
    using R = std::conditional_t<std::is_void_v<typename Job::Result>, void, std::vector<typename Job::Result>>;
    return AsyncResult<R>(core_, std::move(job), []([[maybe_unused]] Request& it) -> StoredResult<R> {
      if constexpr (std::is_void_v<R>)
        return {};
      else
        return static_cast<Job&>(it).take_results();
    });
  }

  template <class F, class Range>
  auto start_imap(Order order, const ImapOptions& options, F function, Range&& range) {
    if (options.chunksize == 0)
      throw std::invalid_argument(
          "ImapOptions::chunksize is 0: give the number of elements that a worker gets at once");
    return Imap<Jobs, F, std::views::all_t<Range>>(core_, order, options, std::move(function),
                                                   std::views::all(std::forward<Range>(range)));
  }

  std::shared_ptr<Core> core_;
};

}  // namespace detail
}  // namespace shoal
