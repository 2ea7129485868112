#include "tests/tensors/cuda/devices.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/guard.h"

namespace shoal::test {
namespace {

void load_kernels_on(const at::TensorOptions& options) {
  at::Tensor tensor = at::zeros({4, 4}, options);
  tensor.fill_(1).add_(1);
  (void)tensor.t().clone().t().contiguous().cpu();
}

}  // namespace

// The driver keeps what it makes at its first use, and so does libtorch's allocator.
void warm_up_for(const std::string& test) {
  if (!test.ends_with("OnCuda"))
    (void)OnHostDouble::devices();
  else if (OnCuda::devices() > 0)
    OnCuda::load_kernels();
}

int OnHostDouble::devices() {
  at::globalContext().lazyInitDevice(kType);
  return host_double::kPhysicalDevices;
}

std::shared_ptr<void> OnHostDouble::close_gate(int device) {
  (void)devices();
  load_kernels_on(at::TensorOptions(c10::Device(kType, c10::DeviceIndex(device))));
  return std::make_shared<host_double::Gate>(device);
}

void OnHostDouble::load_kernels() { load_kernels_on(on<OnHostDouble>()); }

int OnCuda::devices() {
  DeviceMemory* memory = find_device_memory(kType);
  if (!memory) return 0;
  at::globalContext().lazyInitDevice(kType);
  return memory->device_count();
}

namespace {

/// Of the driver's library, whoever has loaded it or not. 0 is success with all of them.
template <class Function>
Function* driver_function(const char* name) {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* found = driver ? ::dlsym(driver, name) : nullptr;
  if (!found) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

OnCuda::Capture::Capture(c10::Stream stream) : stream_(stream) {
  constexpr int kGlobal = 0;
  if (driver_function<int(void*, int)>("cuStreamBeginCapture_v2")(stream.native_handle(), kGlobal) != 0)
    throw std::runtime_error("cuStreamBeginCapture");
}

OnCuda::Capture::~Capture() {
  void* graph = nullptr;
  driver_function<int(void*, void**)>("cuStreamEndCapture")(stream_.native_handle(), &graph);
  if (graph) driver_function<int(void*)>("cuGraphDestroy")(graph);
}

bool OnCuda::Capture::is_broken() const {
  constexpr int kActive = 1;
  int status = 0;
  const int result = driver_function<int(void*, int*)>("cuStreamIsCapturing")(stream_.native_handle(), &status);
  return result != 0 || status != kActive;
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
        c10::getDeviceAllocator(kType)->getDeviceStats(c10::DeviceIndex(device)).allocated_bytes[0].current);
  return sum;
}

void OnCuda::empty_cache() { c10::getDeviceAllocator(kType)->emptyCache(); }

void OnCuda::load_kernels() {
  static const bool loaded = [] {
    load_kernels_on(on<OnCuda>());
    const OnStream another(new_stream<OnCuda>());  // the first one is made together with the 31 others
    (void)at::zeros({4, 4}, on<OnCuda>()).cpu();
    return true;
  }();
  (void)loaded;
}

std::shared_ptr<void> OnCuda::close_gate() {
  using Open = std::shared_ptr<std::atomic<bool>>;
  if (devices() == 0) throw std::runtime_error("a gate without a device");
  load_kernels();
  auto* launch = driver_function<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  const c10::impl::VirtualGuardImpl guard(kType);
  const c10::Stream stream = guard.getStream(c10::Device(kType, 0));
  (void)guard.queryStream(
      stream);  // the runtime makes its context the current one of this thread, which the driver asks
  auto open = std::make_shared<std::atomic<bool>>(false);
  auto wait = [](void* given) {
    std::unique_ptr<Open> open(static_cast<Open*>(given));
    while (!**open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  if (launch(stream.native_handle(), wait, new Open(open)) != 0) throw std::runtime_error("cuLaunchHostFunc");
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
