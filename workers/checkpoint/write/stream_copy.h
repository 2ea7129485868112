// A copy whose stores go around the cache.
#pragma once

#include <cstddef>

namespace shoal::detail {

/// Copies `bytes` from `from` to `to`, which do not overlap. What is written does not pass through the cache: for copies
/// that are larger than it, in pieces that are not. A plain store first reads the line that it will overwrite, a third of
/// all that crosses to memory, and what it leaves in the cache has been pushed out by the end of the copy. (memcpy itself
/// stores so, but by the size of one call.) All is written for whoever sees a later release of this thread.
/// Where the CPU has no AVX, a memcpy.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace shoal::detail
