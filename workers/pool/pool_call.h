// The calls that a pool makes in its workers: how arguments and results cross.
#pragma once

#include <shoal/internal/runtime/call/callable.h>
#include <shoal/internal/workers/pool/map_parts.h>
#include <shoal/internal/workers/pool/pool_job.h>
#include <shoal/ipc/codec.h>

#include <cstring>
#include <optional>
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

template <class R>
StoredResult<R> decode_stored([[maybe_unused]] Decoder& decoder) {
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
  StoredResult<Result>& result() { return *result_; }

 private:
  static void run(AnyFunction named, Decoder& arguments, Encoder& result) {
    F function = function_of<F>(named);
    auto values = decode<Values>(arguments);
    arguments.finish();
    encode_result<Result>(result, [&] { return C::invoke(function, 0, values); });
  }
  void decode_result(std::size_t, Decoder& result) override {
    result_.emplace(decode_stored<Result>(result));
    result.finish();
  }

  Values values_;
  std::optional<StoredResult<Result>> result_;
};

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
 public:
  using Result = std::remove_cvref_t<decltype(call_with<kSpread>(std::declval<F&>(), std::declval<Element>()))>;
  using Parts = MapParts<Element, Result>;
  using Results = typename Parts::Results;

  MapJob(F function, std::vector<Element> elements, std::size_t chunk)
      : Job(&run, name_of<F>(function), Parts::tasks(elements, chunk)), parts_(std::move(elements), chunk) {}

  void encode_arguments(std::size_t task, Encoder& encoder) const override {
    const auto [begin, end] = parts_.range(task);
    encode_part(encoder, parts_.elements(), begin, end);
  }

  /// Once.
  Results take_results() { return parts_.take_results(); }

 private:
  static void run(AnyFunction named, Decoder& arguments, Encoder& result) {
    F function = function_of<F>(named);
    auto elements = decode_part<Element>(arguments);
    arguments.finish();
    if constexpr (std::is_void_v<Result>) {
      for (auto&& element : elements) call_with<kSpread>(function, std::move(element));
    } else {
      Results results;
      results.reserve(elements.size());
      for (auto&& element : elements) results.push_back(call_with<kSpread>(function, std::move(element)));
      encode_part(result, results, 0, results.size());
    }
  }
  void decode_result(std::size_t task, Decoder& result) override {
    if constexpr (!std::is_void_v<Result>) parts_.results(task) = decode_part<Result>(result);
    result.finish();
  }

  Parts parts_;
};

}  // namespace shoal::detail
