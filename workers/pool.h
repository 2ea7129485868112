// Pool: worker processes that run tasks.
#pragma once

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <shoal/workers/pool/async_result.h>
#include <shoal/workers/pool/imap.h>
#include <shoal/workers/pool/pool_call.h>
#include <shoal/workers/pool/pool_core.h>
#include <shoal/workers/pool/pool_failure.h>
#include <shoal/workers/pool/pool_options.h>

namespace shoal {

struct MapOptions {
  /// Elements that a worker gets at once. 0: so many that each worker gets four chunks.
  std::size_t chunksize = 0;
};

/// Worker processes that run tasks, as torch.multiprocessing.Pool. Functions are functions or lambdas without captures;
/// arguments, elements and results are encodable values (see ipc/codec.h): tensors among them cross without a copy
/// where they are shared already, with one into the shared heap otherwise.
///
///     shoal::Pool pool({.processes = 4});
///     std::vector<double> areas = pool.map(area, shapes);
///     auto later = pool.apply_async(evaluate, weights);      // later.get(timeout)
///     for (at::Tensor& image : pool.imap(decode_jpeg, paths)) ...
///
/// What a function throws comes back as ProcessRaised, with type, text, nested exceptions and stack, and its worker
/// goes on. A worker that dies is replaced; the task that it ran is WorkerDied, or run again (PoolOptions), and those
/// that it had not begun are done by others. Nothing waits for a dead worker. Arguments are encoded when a worker gets
/// the task, maybe again for another one: tensors given to apply_async or map_async must not be changed meanwhile.
///
/// Belongs to the process that made it; workers end with it. Its destructor terminates it, as leaving a `with` block
/// does in Python. Threads: any, at once.
class Pool {
 public:
  /// Starts the workers. Throws std::invalid_argument and SystemError.
  explicit Pool(const PoolOptions& options = {})
      : core_(std::make_shared<pooling::PoolCore>(options,
                                                  [](const ProcessOptions& how, const pooling::WorkerEnds& ends) {
                                                    return Process<void>(how, serve, pooling::share(ends));
                                                  })) {}
  explicit Pool(int processes) : Pool(PoolOptions{.processes = processes}) {}

  /// The same; each worker calls initializer(arguments...) before its first task. Where that throws the pool is
  /// stopped, and every task fails with PoolStopped, which says why.
  template <class Initializer, class... Args>
  Pool(const PoolOptions& options, Initializer initializer, Args... arguments);

  Pool(const Pool&) = delete;
  Pool(Pool&&) = default;
  ~Pool() {
    if (core_) core_->terminate();
  }

  [[nodiscard]] int size() const { return core_->size(); }
  /// Of the workers that there are now.
  [[nodiscard]] std::vector<int> pids() const { return core_->pids(); }

  /// function(arguments...) in a worker; returns what it returns.
  template <class F, class... Args>
  auto apply(F function, Args&&... arguments) {
    return call(pooling::PoolCore::Awaited::kNow, function, std::forward<Args>(arguments)...).once().get();
  }
  template <class F, class... Args>
  auto apply_async(F function, Args&&... arguments) {
    return call(pooling::PoolCore::Awaited::kLater, function, std::forward<Args>(arguments)...);
  }

  /// function(element) for each element of a range; a vector of what it returns, in the order of the elements. If some
  /// throw, all others are run all the same, and then the first one's exception comes.
  template <class F, std::ranges::input_range Range>
  auto map(F function, Range&& elements) {
    return map(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  template <class F, std::ranges::input_range Range>
  auto map(const MapOptions& options, F function, Range&& elements) {
    return start_map<pooling::Spread::kWhole>(pooling::PoolCore::Awaited::kNow, options, std::move(function),
                                              std::forward<Range>(elements))
        .once()
        .get();
  }
  template <class F, std::ranges::input_range Range>
  auto map_async(F function, Range&& elements) {
    return map_async(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  template <class F, std::ranges::input_range Range>
  auto map_async(const MapOptions& options, F function, Range&& elements) {
    return start_map<pooling::Spread::kWhole>(pooling::PoolCore::Awaited::kLater, options, std::move(function),
                                              std::forward<Range>(elements));
  }

  /// The same for elements that are tuples or pairs: function(its members...).
  template <class F, std::ranges::input_range Range>
  auto starmap(F function, Range&& elements) {
    return starmap(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  template <class F, std::ranges::input_range Range>
  auto starmap(const MapOptions& options, F function, Range&& elements) {
    return start_map<pooling::Spread::kTuple>(pooling::PoolCore::Awaited::kNow, options, std::move(function),
                                              std::forward<Range>(elements))
        .once()
        .get();
  }
  template <class F, std::ranges::input_range Range>
  auto starmap_async(F function, Range&& elements) {
    return starmap_async(MapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  template <class F, std::ranges::input_range Range>
  auto starmap_async(const MapOptions& options, F function, Range&& elements) {
    return start_map<pooling::Spread::kTuple>(pooling::PoolCore::Awaited::kLater, options, std::move(function),
                                              std::forward<Range>(elements));
  }

  /// A range of the results while they come, in the order of the elements; see Imap. A range given by reference has to
  /// outlive it.
  template <class F, std::ranges::input_range Range>
  auto imap(F function, Range&& elements) {
    return imap(ImapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  template <class F, std::ranges::input_range Range>
  auto imap(const ImapOptions& options, F function, Range&& elements) {
    return start_imap<pooling::Order::kOfInput>(options, std::move(function), std::forward<Range>(elements));
  }
  /// The same, whichever is there first.
  template <class F, std::ranges::input_range Range>
  auto imap_unordered(F function, Range&& elements) {
    return imap_unordered(ImapOptions{}, std::move(function), std::forward<Range>(elements));
  }
  template <class F, std::ranges::input_range Range>
  auto imap_unordered(const ImapOptions& options, F function, Range&& elements) {
    return start_imap<pooling::Order::kOfCompletion>(options, std::move(function), std::forward<Range>(elements));
  }

  /// No more tasks. Those that were given are done; the workers end after that.
  void close() { core_->close(); }
  /// Ends the workers now. Tasks without a result fail with PoolStopped.
  void terminate() { core_->terminate(); }
  /// After close() or terminate(): waits until the workers have ended.
  void join() { core_->join(Deadline::never()); }
  /// The same; false where they have not after `timeout`.
  bool join(std::chrono::nanoseconds timeout) { return core_->join(Deadline::after(timeout)); }

 private:
  static void serve(pooling::WorkerEnds ends) {
    const pooling::WorkerLife life(ends);
    pooling::serve_pool(ends);
  }

  template <class F, class... Args>
  auto call(pooling::PoolCore::Awaited awaited, F function, Args&&... arguments) {
    using Job = pooling::CallJob<F, std::decay_t<Args>...>;
    using R = typename Job::Result;
    auto job = std::make_shared<Job>(std::move(function), std::forward<Args>(arguments)...);
    core_->submit(job, awaited);
    return AsyncResult<R>(core_, std::move(job), [](pooling::Job& it) -> pooling::Kept<R> {
      return std::move(static_cast<Job&>(it).result());
    });
  }

  template <pooling::Spread kSpread, class F, class Range>
  auto start_map(pooling::PoolCore::Awaited awaited, const MapOptions& options, F function, Range&& range) {
    using Element = std::ranges::range_value_t<Range>;
    using Job = pooling::MapJob<kSpread, F, Element>;
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
    return AsyncResult<R>(core_, std::move(job), []([[maybe_unused]] pooling::Job& it) -> pooling::Kept<R> {
      if constexpr (std::is_void_v<R>)
        return {};
      else
        return static_cast<Job&>(it).take_results();
    });
  }

  template <pooling::Order kOrder, class F, class Range>
  auto start_imap(const ImapOptions& options, F function, Range&& range) {
    if (options.chunksize == 0)
      throw std::invalid_argument(
          "ImapOptions::chunksize is 0: give the number of elements that a worker gets at once");
    return pooling::Imap<kOrder, F, std::views::all_t<Range>>(core_, options, std::move(function),
                                                              std::views::all(std::forward<Range>(range)));
  }

  std::shared_ptr<pooling::PoolCore> core_;
};

template <class Initializer, class... Args>
Pool::Pool(const PoolOptions& options, Initializer initializer, Args... arguments) {
  using C = Call<false, Initializer, Args...>;
  using Values = typename C::Values;
  const AnyFunction named = pooling::name_of<Initializer>(initializer);
  core_ = std::make_shared<pooling::PoolCore>(options, [name = named ? name_function(named) : ImageFunction{},
                                                        values = Values(std::move(arguments)...)](
                                                           const ProcessOptions& how, const pooling::WorkerEnds& ends) {
    auto work = [](pooling::WorkerEnds its_ends, const ImageFunction& its_name, Values its_values) {
      const pooling::WorkerLife life(its_ends);
      auto function = pooling::function_of<Initializer>(its_name.build_id.empty() ? nullptr : find_function(its_name));
      C::invoke(function, 0, its_values);
      pooling::serve_pool(its_ends);
    };
    return Process<void>(how, work, pooling::share(ends), name, values);
  });
}

}  // namespace shoal
