// What libtorch's allocator of CUDA memory calls before it asks the driver for more. Not for users.
#pragma once

namespace shoal {

/// Whether this process's libtorch calls DeviceIpc::give_back_for_allocator() then: if it has an allocator of CUDA
/// memory, and had been loaded when the program started.
bool is_called_before_out_of_memory() noexcept;

}  // namespace shoal
