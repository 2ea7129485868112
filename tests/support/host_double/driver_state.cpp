#include "tests/support/host_double/driver_state.h"

#include <c10/util/Exception.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/support/host_double/host_double.h"
#include "tests/support/host_double/streams.h"

namespace shoal::host_double {
namespace {

std::atomic<bool> initialized{false}, broken{false};
std::atomic<Refusal> refusal{Refusal::kNothing};
std::atomic<bool> has_contexts[kPhysicalDevices]{};

// Two, as in c10::cuda: what the runtime has, and what a guard wants put back where that would make a context.
thread_local int runtime_device = 0;
thread_local int wanted_device = -1;

}  // namespace

void initialize() {
  if (!initialized.exchange(true)) (void)::eventfd(0, EFD_CLOEXEC);
}

void load_kernel(const char* name, int device) {
  static auto* loaded = new std::set<std::pair<std::string, int>>;
  static std::mutex mutex;
  {
    std::lock_guard lock(mutex);
    if (!loaded->emplace(name, device).second) return;
  }
  Streams::current().synchronize_device(device);
}

void require_initialized() {
  require_working();
  TORCH_CHECK(initialized, "the double has not been initialized");
}

void make_context(int device) { has_contexts[std::size_t(device)] = true; }
bool has_context(int device) { return has_contexts[std::size_t(device)]; }

bool is_working() { return !broken; }
Refusal refused() { return refusal; }
void require_driver() {
  if (broken) throw DeviceError("the double: an illegal memory access was encountered");
}
void require_working() { TORCH_CHECK(!broken, "an illegal memory access was encountered"); }

int current_device() { return wanted_device >= 0 ? wanted_device : runtime_device; }

void set_device(int device) {
  wanted_device = -1;
  if (device == runtime_device) return;
  runtime_device = device;
  make_context(device);
}

int exchange_device(int device) {
  const int before = current_device();
  set_device(device);
  return before;
}

void put_device_back(int device) {
  if (has_context(device))
    set_device(device);
  else
    wanted_device = device;
}

// ---------------------------------------------------------------- for tests

std::vector<int> contexts() {
  std::vector<int> devices;
  for (int device = 0; device < kPhysicalDevices; ++device)
    if (has_context(device)) devices.push_back(device);
  return devices;
}

void break_device() { broken = true; }
void refuse(Refusal what) { refusal = what; }

}  // namespace shoal::host_double
