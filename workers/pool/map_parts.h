// What the calls of all pools have in common, in whatever they run: how a map is cut, and what results are kept as.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

/// What a job's results are kept as until they are asked for; void is nothing.
template <class R>
using StoredResult = std::conditional_t<std::is_void_v<R>, std::tuple<>, R>;

/// How an element of a map becomes the arguments of a call.
enum class Spread { kWhole, kTuple };

template <Spread kSpread, class F, class Element>
decltype(auto) call_with(F& function, Element&& element) {
  if constexpr (kSpread == Spread::kTuple)
    return std::apply(function, std::forward<Element>(element));
  else
    return std::invoke(function, std::forward<Element>(element));
}

/// The elements of a map, each `chunk` of which are a task, and the results of those that are done. Tasks write to
/// places of their own, so several may at once.
template <class Element, class Result>
class MapParts {
 public:
  using Results = std::vector<StoredResult<Result>>;

  MapParts(std::vector<Element> elements, std::size_t chunk)
      : elements_(std::move(elements)), chunk_(chunk), parts_(tasks(elements_, chunk)) {}

  static std::size_t tasks(const std::vector<Element>& elements, std::size_t chunk) {
    return elements.size() / chunk + (elements.size() % chunk != 0);  // no sum, which could wrap around
  }

  std::vector<Element>& elements() { return elements_; }
  [[nodiscard]] const std::vector<Element>& elements() const { return elements_; }
  /// Where a task's elements begin and end.
  [[nodiscard]] std::pair<std::size_t, std::size_t> range(std::size_t task) const {
    return {task * chunk_, std::min((task + 1) * chunk_, elements_.size())};
  }
  /// A task's results. Of a function that returns nothing they may be left out.
  Results& results(std::size_t task) { return parts_[task]; }

  /// All results, in the order of the elements. Once.
  Results take_results() {
    if constexpr (std::is_void_v<Result>) return Results(elements_.size());
    Results results;
    results.reserve(elements_.size());
    for (Results& part : parts_) std::move(part.begin(), part.end(), std::back_inserter(results));
    return results;
  }

 private:
  std::vector<Element> elements_;
  std::size_t chunk_;
  std::vector<Results> parts_;
};

}  // namespace shoal::detail
