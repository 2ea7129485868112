// Compiled where nccl_backend.cpp cannot be.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/nccl/nccl_backend.h>
#include <torch/version.h>

#include <stdexcept>

namespace shoal {

std::string why_no_nccl() {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA))
    return fmt::format(
        "libtorch {} has CUDA, but this build of shoal found no NCCL beside it: it looks for nccl.h (in the wheel "
        "nvidia-nccl-cu13, or -DNCCL_ROOT=...) and CUDA's headers (of a toolkit, or with the wheel nvidia-cuda-crt) "
        "when it is configured",
        TORCH_VERSION);
  return fmt::format(
      "libtorch {} here is the one for CPUs, without CUDA and NCCL; the wheel of torch {} for CUDA has them "
      "(pip install torch=={} from an index of PyTorch for CUDA)",
      TORCH_VERSION, TORCH_VERSION, TORCH_VERSION);
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                                    std::chrono::milliseconds) {
  throw std::invalid_argument("backend 'nccl': " + why_no_nccl());
}

}  // namespace shoal
