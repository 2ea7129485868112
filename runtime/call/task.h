// A call for another process: function, arguments and result, without their types.
#pragma once

#include <shoal/internal/runtime/call/callable.h>
#include <shoal/internal/runtime/call/image_function.h>
#include <shoal/ipc/codec.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shoal {

/// The call with its arguments, in the started process. call() may use the arguments up.
class PreparedCall {
 public:
  virtual ~PreparedCall() = default;
  virtual void call(int rank, Encoder& result) = 0;
};

/// The call's own code, which both processes know: makes the call of the function and the encoded arguments.
using TaskEntry = std::unique_ptr<PreparedCall> (*)(AnyFunction function, Decoder& arguments);

/// The call in the process that starts others. One task may serve the starts of several ranks.
class Task {
 public:
  virtual ~Task() = default;
  virtual void encode_arguments(Encoder& encoder) const = 0;
  virtual TaskEntry entry() const = 0;
  /// Null if the entry knows the function by its type.
  virtual AnyFunction function() const = 0;
  /// Called in a forked child, which has its copy of this object: uses it up.
  virtual std::unique_ptr<PreparedCall> prepare_inherited() = 0;
  virtual bool returns_value() const = 0;
};

/// kRanked: the function's first parameter is the rank.
template <bool kRanked, class F, class... Args>
class TypedTask final : public Task {
  using C = Call<kRanked, F, Args...>;
  using Values = typename C::Values;
  using Function = typename C::Function;

  class Prepared final : public PreparedCall {
   public:
    Prepared(Function function, Values values) : function_(std::move(function)), values_(std::move(values)) {}
    void call(int rank, [[maybe_unused]] Encoder& result) override {
      if constexpr (std::is_void_v<typename C::Result>)
        C::invoke(function_, rank, values_);
      else
        encode<typename C::Result>(result, C::invoke(function_, rank, values_));
    }

   private:
    Function function_;
    Values values_;
  };

 public:
  explicit TypedTask(F function, Args... arguments)
      : function_(std::forward<F>(function)), values_(std::forward<Args>(arguments)...) {
    if constexpr (!std::is_void_v<typename C::Result>) (void)schema_of<typename C::Result>();
  }

  void encode_arguments(Encoder& encoder) const override {
    if constexpr (C::kCrosses) {
      encode_all(encoder, std::make_index_sequence<std::tuple_size_v<Values>>());
    }
  }
  TaskEntry entry() const override {
    if constexpr (C::kCrosses)
      return &decode_call;
    else
      return nullptr;
  }
  AnyFunction function() const override {
    if constexpr (std::is_pointer_v<Function>)
      return reinterpret_cast<AnyFunction>(function_);
    else
      return nullptr;
  }
  std::unique_ptr<PreparedCall> prepare_inherited() override {
    return std::make_unique<Prepared>(std::move(function_), std::move(values_));
  }
  bool returns_value() const override { return !std::is_void_v<typename C::Result>; }

 private:
  template <std::size_t... I>
  void encode_all(Encoder& encoder, std::index_sequence<I...>) const {
    (encode<std::tuple_element_t<I, Values>>(encoder, std::get<I>(values_)), ...);
  }
  template <std::size_t... I>
  static Values decode_all([[maybe_unused]] Decoder& decoder, std::index_sequence<I...>) {
    return Values{decode<std::tuple_element_t<I, Values>>(decoder)...};  // braces: evaluated in order
  }
  static std::unique_ptr<PreparedCall> decode_call([[maybe_unused]] AnyFunction function, Decoder& arguments) {
    Values values = decode_all(arguments, std::make_index_sequence<std::tuple_size_v<Values>>());
    arguments.finish();
    if constexpr (std::is_pointer_v<Function>)
      return std::make_unique<Prepared>(reinterpret_cast<Function>(function), std::move(values));
    else
      return std::make_unique<Prepared>(Function{}, std::move(values));
  }

  Function function_;
  Values values_;
};

}  // namespace shoal
