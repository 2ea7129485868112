// CUDA's DeviceMemory: the driver, loaded when it is first needed.
#pragma once

#include <string>

namespace shoal {

class DeviceMemory;

/// CUDA's, or null if this build has no CUDA, the machine no driver, or the driver no device. Threads: any.
DeviceMemory* cuda_memory();

/// Why cuda_memory() is null, and what to do.
std::string cuda_memory_missing();

/// Whether anybody in this process has initialized the driver. Neither loads nor initializes it.
bool cuda_is_initialized() noexcept;

}  // namespace shoal
