// The calls that a ThreadPool makes: nothing crosses, so nothing is encoded.
#pragma once

#include <shoal/internal/workers/pool/map_parts.h>
#include <shoal/internal/workers/pool/threads/thread_core.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

/// One call with its arguments. All threads call the one function, which is const therefore. The arguments are the
/// call's own, and are moved into it; std::ref makes one a reference.
template <class F, class... Args>
class ThreadCallJob final : public ThreadJob {
 public:
  using Result = std::remove_cvref_t<std::invoke_result_t<const F&, std::unwrap_ref_decay_t<Args>...>>;

  explicit ThreadCallJob(F function, Args... arguments)
      : ThreadJob(1), function_(std::move(function)), arguments_(std::make_tuple(std::move(arguments)...)) {}

  void run(std::size_t) override {
    if constexpr (std::is_void_v<Result>) {
      std::apply(function_, std::move(arguments_));
      result_.emplace();
    } else {
      result_.emplace(std::apply(function_, std::move(arguments_)));
    }
  }
  StoredResult<Result>& result() { return *result_; }

 private:
  const F function_;
  std::tuple<std::unwrap_ref_decay_t<Args>...> arguments_;
  std::optional<StoredResult<Result>> result_;
};

/// A call for each element; a task is a chunk of them.
template <Spread kSpread, class F, class Element>
class ThreadMapJob final : public ThreadJob {
 public:
  using Result = std::remove_cvref_t<decltype(call_with<kSpread>(std::declval<const F&>(), std::declval<Element>()))>;
  using Parts = MapParts<Element, Result>;

  ThreadMapJob(F function, std::vector<Element> elements, std::size_t chunk)
      : ThreadJob(Parts::tasks(elements, chunk)), function_(std::move(function)), parts_(std::move(elements), chunk) {}

  void run(std::size_t task) override {
    auto& elements = parts_.elements();
    for (auto [i, end] = parts_.range(task); i < end; ++i) {
      // Of a std::vector<bool> it is a bool that comes, not a reference into the vector.
      const auto invoke = [&]() -> decltype(auto) {
        return call_with<kSpread>(function_, static_cast<Element&&>(elements[i]));
      };
      if constexpr (std::is_void_v<Result>)
        invoke();
      else
        parts_.results(task).push_back(invoke());
    }
  }

  /// Once.
  typename Parts::Results take_results() { return parts_.take_results(); }

 private:
  const F function_;
  Parts parts_;
};

}  // namespace shoal::detail
