// Waiting for several connections, processes and descriptors at once.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/pipe/any_connection.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

namespace shoal {

/// One thing that wait() waits for. It only refers to the thing, for the time of the call.
///
/// - A connection is ready when it has a message or the end of file.
/// - A process (any type with a sentinel()) is ready when it has ended.
/// - An open descriptor is ready when it is readable.
class Waitable {
 public:
  /// The connection has to outlive the call.
  explicit(false) Waitable(const AnyConnection& connection) : connection_(&connection) {}
  /// An open descriptor, not owned.
  template <std::same_as<int> Descriptor>
  explicit(false) Waitable(Descriptor descriptor) : descriptor_(descriptor) {}  // no other number is one
  /// Whatever has a sentinel(), which has to outlive the call.
  template <class Process>
    requires requires(const Process& process) {
      { process.sentinel() } -> std::same_as<int>;
    }
  explicit(false) Waitable(const Process& process) : descriptor_(process.sentinel()) {}

 private:
  friend std::vector<std::size_t> wait(std::span<const Waitable> things, Deadline deadline);
  static std::vector<std::size_t> wait_for_connections(std::span<const Waitable> things, Deadline deadline);
  static std::vector<std::size_t> wait_for_descriptors(std::span<const Waitable> things, Deadline deadline);
  AnyConnection::Core& core(std::size_t index) const;

  const AnyConnection* connection_ = nullptr;
  int descriptor_ = -1;
};

/// Waits until at least one of `things` is ready and returns the indices of all that are, like
/// multiprocessing.connection.wait. Returns none if the deadline passes or `things` is empty. Connections alone need no
/// descriptor; beside other things their fileno() is used. Throws std::invalid_argument for an end that only sends or a
/// descriptor that is not open, std::logic_error for a closed connection.
std::vector<std::size_t> wait(std::span<const Waitable> things, Deadline deadline);

/// Connections, processes or descriptors that outlive the call.
template <class Things>
concept WaitableRange = std::ranges::input_range<const Things> &&
                        std::convertible_to<std::ranges::range_reference_t<const Things>, Waitable> &&
                        std::is_lvalue_reference_v<std::ranges::range_reference_t<const Things>>;

/// Waits until `deadline` for any range of things, whose elements are not copied; returns the indices of those that are
/// ready.
template <WaitableRange Things>
std::vector<std::size_t> wait(const Things& things, Deadline deadline) {
  const std::vector<Waitable> all(std::ranges::begin(things), std::ranges::end(things));
  return wait(std::span<const Waitable>(all), deadline);
}
/// Waits until `deadline` for things of several kinds: `wait({connection, process}, deadline)`.
inline std::vector<std::size_t> wait(std::initializer_list<Waitable> things, Deadline deadline) {
  return wait(std::span<const Waitable>(things.begin(), things.size()), deadline);
}
/// Waits for any range of things, as long as it takes.
template <WaitableRange Things>
std::vector<std::size_t> wait(const Things& things) {
  return wait(things, Deadline::never());
}
/// Waits for any range of things up to `timeout`; returns an empty vector if none was ready by then.
template <WaitableRange Things>
std::vector<std::size_t> wait(const Things& things, std::chrono::nanoseconds timeout) {
  return wait(things, Deadline::after(timeout));
}
/// Waits for things of several kinds, as long as it takes.
inline std::vector<std::size_t> wait(std::initializer_list<Waitable> things) { return wait(things, Deadline::never()); }
/// Waits for things of several kinds up to `timeout`; returns an empty vector if none was ready by then.
inline std::vector<std::size_t> wait(std::initializer_list<Waitable> things, std::chrono::nanoseconds timeout) {
  return wait(things, Deadline::after(timeout));
}

}  // namespace shoal
