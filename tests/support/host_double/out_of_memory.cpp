// Where libtorch's allocator for CUDA looks for what may give memory back, in a libtorch that has no such allocator.
#include "tests/support/host_double/out_of_memory.h"

#include <c10/util/Registry.h>

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

using FreeMemoryCallbacks = Registry<std::string, std::unique_ptr<FreeMemoryCallback>>;

// NOLINTNEXTLINE(readability-identifier-naming): its own name.
[[gnu::visibility("default")]] FreeMemoryCallbacks* FreeCudaMemoryCallbacksRegistry() {
  static auto* registry = new FreeMemoryCallbacks;
  return registry;
}
}  // namespace c10

namespace shoal::host_double {

bool call_before_out_of_memory() {
  bool freed = false;
  for (const std::string& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
    freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
  return freed;
}

}  // namespace shoal::host_double
