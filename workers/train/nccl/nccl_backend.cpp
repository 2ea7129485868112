// Compiled where libtorch's CUDA half, its nccl.h and the CUDA headers are there.
#include <shoal/internal/workers/train/nccl/nccl_backend.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace shoal {

std::string why_no_nccl() {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return {};
  return "this build of shoal knows NCCL, and the libtorch that the program runs with has no CUDA: let it find the one "
         "that "
         "shoal was built with";
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace shoal
