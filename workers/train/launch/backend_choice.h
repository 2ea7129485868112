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

/// What connects ranks, by the kind of device that a tensor is on.
struct BackendChoice {
  CpuBackend cpu = CpuBackend::automatic;
  bool nccl = false;  ///< for CUDA tensors; without it they are refused
};

/// Reads what torch.distributed writes: a name, or a name for each kind of device, "cpu:gloo,cuda:nccl". "auto" and "nccl"
/// are both for CPU tensors as CpuBackend::automatic says, with NCCL for CUDA tensors: "auto" where it is there. Throws
/// std::invalid_argument, which lists the names, and says what a libtorch for "nccl" would have to be.
BackendChoice parse_backend(const std::string& text);

/// Its name.
const char* text_of(CpuBackend backend);
/// Likewise, with what CUDA tensors have.
std::string text_of(const BackendChoice& choice);

}  // namespace shoal
