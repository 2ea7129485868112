// The calls that a pool makes in its workers: how arguments and results cross.
#pragma once

#include <shoal/internal/runtime/call/callable.h>
#include <shoal/internal/workers/pool/pool_job.h>
#include <shoal/ipc/codec.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace shoal::detail {

/// F as it can be called in another process: a function pointer is named, a captureless lambda is its type.
template <class F>
AnyFunction name_of([[maybe_unused]] const F& function) {
  static_assert(kCallableCrosses<F>,
                "shoal: a pool's function is a function or a lambda without captures: its workers run already, so what "
                "was captured cannot get there. Give it as arguments");
  if constexpr (std::is_pointer_v<F>)
    return reinterpret_cast<AnyFunction>(function);
  else
    return nullptr;
}
template <class F>
F function_of([[maybe_unused]] AnyFunction named) {
  if constexpr (std::is_pointer_v<F>)
    return reinterpret_cast<F>(named);
  else
    return F{};
}

template <class R, class Invoke>
void encode_result([[maybe_unused]] Encoder& encoder, Invoke&& invoke) {
  if constexpr (std::is_void_v<R>)
    invoke();
  else
    encode<R>(encoder, invoke());
}

/// What a job's results are kept as until they are asked for; void is nothing.
template <class R>
using Kept = std::conditional_t<std::is_void_v<R>, std::tuple<>, R>;

template <class R>
Kept<R> decode_kept([[maybe_unused]] Decoder& decoder) {
  if constexpr (std::is_void_v<R>)
    return {};
  else
    return decode<R>(decoder);
}

/// One call with its arguments: Pool::apply.
template <class F, class... Args>
class CallJob final : public Job {
  using C = Call<false, F, Args...>;
  using Values = typename C::Values;

 public:
  using Result = typename C::Result;

  explicit CallJob(F function, Args... arguments)
      : Job(&run, name_of<F>(function), 1), values_(std::move(arguments)...) {}

  void encode_arguments(std::size_t, Encoder& encoder) const override { encode<Values>(encoder, values_); }
  Kept<Result>& result() { return *result_; }

 private:
  static void run(AnyFunction named, Decoder& arguments, Encoder& result) {
    F function = function_of<F>(named);
    auto values = decode<Values>(arguments);
    arguments.finish();
    encode_result<Result>(result, [&] { return C::invoke(function, 0, values); });
  }
  void decode_result(std::size_t, Decoder& result) override {
    result_.emplace(decode_kept<Result>(result));
    result.finish();
  }

  Values values_;
  std::optional<Kept<Result>> result_;
};

/// How an element of a map becomes the arguments of a call.
enum class Spread { kWhole, kTuple };

/// Elements of a sequence, a part of it: in each message of a map.
template <class Element>
void encode_part(Encoder& encoder, const std::vector<Element>& all, std::size_t begin, std::size_t end) {
  encoder.write(std::uint64_t(end - begin));
  if constexpr (kBytesAreValue<Element> && !std::is_same_v<Element, bool>)
    encoder.write(all.data() + begin, (end - begin) * sizeof(Element));
  else
    for (std::size_t i = begin; i < end; ++i) encode<Element>(encoder, all[i]);
}
template <class Element>
std::vector<Element> decode_part(Decoder& decoder) {
  std::vector<Element> part;
  if constexpr (kBytesAreValue<Element> && !std::is_same_v<Element, bool>) {
    const std::size_t count = decoder.read_count(sizeof(Element));
    part.resize(count);
    if (count != 0) std::memcpy(part.data(), decoder.read(count * sizeof(Element)).data(), count * sizeof(Element));
  } else {
    const std::size_t count = decoder.read_count(1);
    part.reserve(count);
    for (std::size_t i = 0; i < count; ++i) part.push_back(decode<Element>(decoder));
  }
  return part;
}

/// A call for each element: Pool::map, starmap. A task is a chunk of them, and results come back in chunks.
template <Spread kSpread, class F, class Element>
class MapJob final : public Job {
  template <class E>
  static decltype(auto) invoke(F& function, E&& element) {
    if constexpr (kSpread == Spread::kTuple)
      return std::apply(function, std::forward<E>(element));
    else
      return std::invoke(function, std::forward<E>(element));
  }

 public:
  using Result = std::remove_cvref_t<decltype(invoke(std::declval<F&>(), std::declval<Element>()))>;
  using Results = std::vector<Kept<Result>>;

  MapJob(F function, std::vector<Element> elements, std::size_t chunk)
      : Job(&run, name_of<F>(function), (elements.size() + chunk - 1) / chunk),
        elements_(std::move(elements)),
        chunk_(chunk),
        parts_((elements_.size() + chunk - 1) / chunk) {}

  void encode_arguments(std::size_t task, Encoder& encoder) const override {
    encode_part(encoder, elements_, task * chunk_, std::min((task + 1) * chunk_, elements_.size()));
  }

  /// Once.
  Results take_results() {
    if constexpr (std::is_void_v<Result>) return Results(elements_.size());
    Results results;
    results.reserve(elements_.size());
    for (Results& part : parts_) std::move(part.begin(), part.end(), std::back_inserter(results));
    return results;
  }

 private:
  static void run(AnyFunction named, Decoder& arguments, Encoder& result) {
    F function = function_of<F>(named);
    auto elements = decode_part<Element>(arguments);
    arguments.finish();
    if constexpr (std::is_void_v<Result>) {
      for (auto&& element : elements) invoke(function, std::move(element));
    } else {
      Results results;
      results.reserve(elements.size());
      for (auto&& element : elements) results.push_back(invoke(function, std::move(element)));
      encode_part(result, results, 0, results.size());
    }
  }
  void decode_result(std::size_t task, Decoder& result) override {
    if constexpr (!std::is_void_v<Result>) parts_[task] = decode_part<Result>(result);
    result.finish();
  }

  std::vector<Element> elements_;
  std::size_t chunk_;
  std::vector<Results> parts_;
};

}  // namespace shoal::detail
