// Which device the batches of a data loader go to.
#pragma once

#include <c10/core/Device.h>
#include <shoal/runtime/option_text.h>

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shoal {

/// A device, or a function that chooses one. The loading process calls the function when its first loop begins, so
/// options that are made once for all ranks name another device in each. Without a choice batches stay where they are
/// made. A plain value.
///
///     {.to_device = at::kCUDA}                                              // the current device
///     {.to_device = [] { return at::Device(at::kCUDA, local_rank()); }}
class DeviceChoice {
 public:
  DeviceChoice() = default;
  /// None: batches stay where they are made.
  explicit(false) DeviceChoice(std::nullopt_t) {}
  /// This device, or the current one of this kind.
  template <std::convertible_to<c10::Device> D>
  explicit(false) DeviceChoice(D&& device) : fixed_(std::forward<D>(device)) {}
  /// What the function returns, in the process that loads.
  template <class F>
    requires(std::invocable<F&> && std::convertible_to<std::invoke_result_t<F&>, c10::Device>)
  explicit(false) DeviceChoice(F choose) : choose_(std::move(choose)) {}

  /// Throws std::invalid_argument for a fixed device of a kind that libtorch does not have. Starts no driver.
  void check() const;
  /// The device with its index; nothing for the CPU or without a choice. Throws std::invalid_argument, which names the
  /// device and how many there are.
  std::optional<c10::Device> resolve() const;
  /// resolve() that returns the CPU, too: nothing only without a choice.
  std::optional<c10::Device> chosen() const;

 private:
  friend struct OptionFormat<DeviceChoice>;
  std::optional<c10::Device> fixed_;
  std::function<c10::Device()> choose_;
};

/// As an option: "none", "cpu", "cuda", "cuda:1". A function is none, and is left out of files.
template <>
struct OptionFormat<DeviceChoice> {
  static constexpr std::string_view kType = "device";                     ///< in --help
  static DeviceChoice from_text(std::string_view text);                   ///< throws std::invalid_argument
  static std::optional<std::string> to_text(const DeviceChoice& choice);  ///< nothing for a function
};

}  // namespace shoal
