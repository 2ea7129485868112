#include "tests/tensors/cuda/devices.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace shoal::test {

int OnCuda::devices() {
  DeviceMemory* memory = find_device_memory(kType);
  return memory ? memory->device_count() : 0;
}

void OnCuda::show_devices(const std::vector<int>& devices) {
  std::string list;
  for (int device : devices) list += (list.empty() ? "" : ",") + std::to_string(device);
  ::setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
}

std::size_t OnCuda::bytes_in_storages() {
  std::size_t sum = 0;
  for (int device = 0; device < devices(); ++device)
    sum += std::size_t(
        c10::getDeviceAllocator(kType)->getDeviceStats(c10::DeviceIndex(device)).requested_bytes[0].current);
  return sum;
}

void OnCuda::empty_cache() { c10::getDeviceAllocator(kType)->emptyCache(); }

std::shared_ptr<void> OnCuda::close_gate() {
  using Open = std::shared_ptr<std::atomic<bool>>;
  // The driver's function for host work in a stream; null is the default stream.
  static auto* launch =
      reinterpret_cast<int (*)(void*, void (*)(void*), void*)>(::dlsym(RTLD_DEFAULT, "cuLaunchHostFunc"));
  if (!launch) throw std::runtime_error("the CUDA driver is not loaded");
  auto open = std::make_shared<std::atomic<bool>>(false);
  auto wait = [](void* given) {
    std::unique_ptr<Open> open(static_cast<Open*>(given));
    while (!**open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  if (launch(nullptr, wait, new Open(open)) != 0) throw std::runtime_error("cuLaunchHostFunc");
  return {nullptr, [open](void*) { *open = true; }};
}

void OnCuda::settle(c10::Stream stream) {
  c10::impl::VirtualGuardImpl guard(kType);
  for (int i = 0; i < 200 && !guard.queryStream(stream); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool skipped(const char* kind, int has, int needs) {
  static int count = 0;
  if (has >= needs) return false;
  std::fprintf(stderr, "SKIPPED: needs %d device(s) of the kind %s, this machine has %d (%d skipped so far)\n", needs,
               kind, has, ++count);
  return true;
}

bool eventually(const std::function<bool()>& is_so) {
  for (int i = 0; i < 2000; ++i) {
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace shoal::test
