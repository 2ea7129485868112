// What the host double's allocator asks before it says that memory is out.
#pragma once

namespace shoal::host_double {

/// Calls what is registered to give memory back, as libtorch's allocator for CUDA does: under the allocator's lock.
/// Returns whether any of it did.
bool call_before_out_of_memory();

}  // namespace shoal::host_double
