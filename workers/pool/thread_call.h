// The calls that a ThreadPool makes: nothing crosses, so nothing is encoded.
#pragma once

#include <shoal/internal/workers/pool/pool_call.h>
#include <shoal/internal/workers/pool/thread_core.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

/// Calls, and keeps what comes; of a function that returns nothing an empty tuple.
template <class R, class Invoke>
Kept<R> call_and_keep(Invoke&& invoke) {
  if constexpr (std::is_void_v<R>) {
    invoke();
    return {};
  } else {
    return invoke();
  }
}

/// One call with its arguments. All threads call the one function, which is const therefore. The arguments are the
/// call's own, and are moved into it; std::ref makes one a reference.
template <class F, class... Args>
class ThreadCallJob final : public ThreadJob {
 public:
  using Result = std::remove_cvref_t<std::invoke_result_t<const F&, std::unwrap_ref_decay_t<Args>...>>;

  explicit ThreadCallJob(F function, Args... arguments)
      : ThreadJob(1), function_(std::move(function)), arguments_(std::make_tuple(std::move(arguments)...)) {}

  void run(std::size_t) override {
    result_.emplace(
        call_and_keep<Result>([&]() -> decltype(auto) { return std::apply(function_, std::move(arguments_)); }));
  }
  Kept<Result>& result() { return *result_; }

 private:
  const F function_;
  std::tuple<std::unwrap_ref_decay_t<Args>...> arguments_;
  std::optional<Kept<Result>> result_;
};

/// A call for each element; a task is a chunk of them. Tasks write to places of their own.
template <Spread kSpread, class F, class Element>
class ThreadMapJob final : public ThreadJob {
  static decltype(auto) invoke(const F& function, Element&& element) {
    if constexpr (kSpread == Spread::kTuple)
      return std::apply(function, std::move(element));
    else
      return std::invoke(function, std::move(element));
  }

 public:
  using Result = std::remove_cvref_t<decltype(invoke(std::declval<const F&>(), std::declval<Element>()))>;
  using Results = std::vector<Kept<Result>>;

  ThreadMapJob(F function, std::vector<Element> elements, std::size_t chunk)
      : ThreadJob((elements.size() + chunk - 1) / chunk),
        function_(std::move(function)),
        elements_(std::move(elements)),
        chunk_(chunk),
        parts_(tasks()) {}

  void run(std::size_t task) override {
    const std::size_t end = std::min((task + 1) * chunk_, elements_.size());
    for (std::size_t i = task * chunk_; i < end; ++i)
      parts_[task].push_back(
          call_and_keep<Result>([&]() -> decltype(auto) { return invoke(function_, std::move(elements_[i])); }));
  }

  /// Once.
  Results take_results() {
    Results results;
    results.reserve(elements_.size());
    for (Results& part : parts_) std::move(part.begin(), part.end(), std::back_inserter(results));
    return results;
  }

 private:
  const F function_;
  std::vector<Element> elements_;
  std::size_t chunk_;
  std::vector<Results> parts_;
};

}  // namespace shoal::detail
