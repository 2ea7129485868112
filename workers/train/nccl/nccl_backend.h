// c10d's own backend "nccl", where libtorch has it.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace c10d {
class Store;
}

namespace shoal {

/// Why there is no NCCL here, in a line that says which libtorch and which build would have it; empty if there is. Which of
/// two sources has these functions is chosen when shoal is built (.cmake/DetectNccl.cmake).
std::string why_no_nccl();

/// All ranks as c10d's ProcessGroupNCCL has them, for CUDA tensors. They meet in the store when the first tensor comes.
/// Throws what c10d throws; std::invalid_argument with why_no_nccl().
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout);

}  // namespace shoal
