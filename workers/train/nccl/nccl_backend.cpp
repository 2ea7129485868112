// Compiled where libtorch's CUDA half, its nccl.h and the CUDA headers are there.
#include <shoal/internal/workers/train/nccl/nccl_backend.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace shoal {

std::string why_no_nccl() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA))
    return "this build of shoal knows NCCL, and the libtorch that the program runs with has no CUDA: let it find the "
           "one that shoal was built with";
  // The wheel of torch for CUDA is the usual one on machines without a GPU, too.
  if (c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount() > 0) return {};
  return fmt::format(
      "libtorch {} has CUDA, but CUDA sees no GPU here: nvidia-smi shows whether there is one, and "
      "CUDA_VISIBLE_DEVICES may hide it",
      TORCH_VERSION);
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace shoal
