// In place of cuda_memory.cpp if the build found no CUDA toolkit.
#include <shoal/internal/tensors/driver/cuda_memory.h>

namespace shoal {

DeviceMemory* cuda_memory() { return nullptr; }

std::string cuda_memory_missing() {
  return "shoal was built without the CUDA toolkit: tensors on CUDA devices cannot be shared; send tensor.cpu()";
}

bool cuda_is_initialized() noexcept { return false; }

}  // namespace shoal
