// What an older libtorch says in other words, for the tests of that.
#pragma once

#include <c10/util/Exception.h>
#include <shoal/tensors/read_only.h>

namespace shoal::test {

#if __has_include(<c10/core/StorageMaterializer.h>)
inline constexpr bool kIsOldLibtorch = false;
using RefusedWrite = WriteToReadOnlyTensor;
#else
/// Up to 2.12: it refuses to write to a read-only storage without a name.
inline constexpr bool kIsOldLibtorch = true;
using RefusedWrite = c10::Error;
#endif

}  // namespace shoal::test
