// The names of backends.
#pragma once

#include <string>

namespace shoal {

/// What connects ranks for CPU tensors.
enum class CpuBackend {
  automatic,  ///< shared memory within a host, Gloo between hosts
  shm,        ///< shared memory: one host
  gloo,       ///< c10d's ProcessGroupGloo between all ranks
};

/// Reads what torch.distributed writes: a name, or a name for each kind of device, "cpu:gloo,cuda:nccl". Throws
/// std::invalid_argument, which lists the names, and says what a libtorch for "nccl" would have to be.
CpuBackend parse_backend(const std::string& text);

/// Its name.
const char* text_of(CpuBackend backend);

}  // namespace shoal
