#include <shoal/internal/tensors/cuda/before_out_of_memory.h>

#include <c10/util/Registry.h>
#include <dlfcn.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>

#include <memory>
#include <string>

// As in c10/cuda/CUDACachingAllocator.h, which cannot be included without the toolkit's headers.
namespace c10 {
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  // NOLINTNEXTLINE(readability-identifier-naming): its own name.
  virtual bool Execute() = 0;
};
}  // namespace c10

namespace shoal {
namespace {

using Registry = c10::Registry<std::string, std::unique_ptr<c10::FreeMemoryCallback>>;

struct GiveBack final : c10::FreeMemoryCallback {
  bool Execute() override { return DeviceIpc::give_back_for_allocator(); }
};

/// Looked up, because a libtorch for CPUs has none. Only while nothing else runs: the allocator reads the registry
/// without a lock.
bool enter() {
  void* found = ::dlsym(RTLD_DEFAULT, "_ZN3c1031FreeCudaMemoryCallbacksRegistryB5cxx11Ev");
  if (!found) return false;
  reinterpret_cast<Registry* (*)()>(found)()->Register(
      "shoal", [] { return std::unique_ptr<c10::FreeMemoryCallback>(new GiveBack); }, "storages that nobody else has");
  return true;
}

const bool entered = enter();

}  // namespace

bool is_called_before_out_of_memory() noexcept { return entered; }

}  // namespace shoal
