// The kinds of devices that the tests of tensors/cuda run on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <shoal/internal/tensors/driver/on_stream.h>
#include <shoal/tensors/ipc_collect.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/host_double/host_double.h"

namespace shoal::test {

/// Everywhere.
struct OnHostDouble {
  static constexpr c10::DeviceType kType = host_double::kType;
  static constexpr bool kIsDouble = true;
  /// Lets libtorch start it, as the other functions need it.
  static int devices();
  static void show_devices(const std::vector<int>& devices) { host_double::set_visible(devices); }
  static std::size_t bytes_in_storages() { return host_double::bytes_in_storages(); }
  static int events() { return host_double::counts().events; }
  static void empty_cache() { host_double::empty_cache(); }
  static void load_kernels();
  static std::shared_ptr<void> close_gate(int device = 0);
  static void settle(c10::Stream stream) { host_double::settle(stream); }
  using Capture = host_double::Capture;
};

/// Where libtorch and the machine have CUDA; elsewhere its cases are skipped, and counted.
struct OnCuda {
  static constexpr c10::DeviceType kType = c10::DeviceType::CUDA;
  static constexpr bool kIsDouble = false;
  /// Starts the driver and libtorch's allocator, in which the other functions look.
  static int devices();
  /// In a process that has not used CUDA yet.
  static void show_devices(const std::vector<int>& devices);
  static std::size_t bytes_in_storages();
  static int events() { return 0; }  // the driver does not say
  static void empty_cache();
  /// Launches each kernel that the cases use once. The driver loads a kernel when it is first launched, and may wait for
  /// all that is queued on the device: behind a gate, its own or another process's, that would be for ever.
  /// It makes the streams of device 0, too.
  static void load_kernels();
  /// Stops the calling thread's current stream of device 0 until the last copy of what is returned is gone. One gate of
  /// a process at a time: the driver calls its host functions one after the other.
  static std::shared_ptr<void> close_gate();
  /// Long enough for work that waits for nothing.
  static void settle(c10::Stream stream);
  /// Captures a stream into a graph as long as it is there, in the mode in which other threads can break that, too.
  class Capture {
   public:
    explicit Capture(c10::Stream stream);
    Capture(const Capture&) = delete;
    ~Capture();
    bool is_broken() const;

   private:
    c10::Stream stream_;
  };
};

/// Counts and says a case that needs more devices of the kind than there are.
bool skipped(const char* kind, int has, int needs);

template <class On>
bool skipped(int needs = 1) {
  return skipped(On::kIsDouble ? "host double" : "CUDA", On::devices(), needs);
}

template <class On>
at::TensorOptions on(int device = 0) {
  return at::TensorOptions(c10::Device(On::kType, c10::DeviceIndex(device)));
}

/// Waits, in reasonable steps, until it is so; false after ten seconds.
bool eventually(const std::function<bool()>& is_so);

/// What a case must leave behind: nothing. False says that something is left.
template <class On>
bool nothing_left() {
  const bool released = wait_until_released(std::chrono::seconds(10));
  ipc_collect();
  const bool done = eventually([] {
    ipc_collect();
    const DeviceIpcStatistics left = device_ipc_statistics();
    return left.exports == 0 && left.imports == 0 && left.open_bases == 0 && left.word_pages == 0 &&
           left.pinned_blocks == 0 && On::events() == 0;
  });
  On::empty_cache();
  return released && done;
}

template <class On>
c10::Stream new_stream(int device = 0) {
  return c10::impl::VirtualGuardImpl(On::kType).getNewStream(c10::Device(On::kType, c10::DeviceIndex(device)));
}

}  // namespace shoal::test

/// A case on each kind of device; `On` is the kind.
#define DEVICE_TEST_CASE(name) TEMPLATE_TEST_CASE("device ipc: " name, "", OnHostDouble, OnCuda)
