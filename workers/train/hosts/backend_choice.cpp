#include <shoal/internal/workers/train/hosts/backend_choice.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <optional>
#include <stdexcept>

namespace shoal {
namespace {

[[noreturn]] void refuse_nccl() {
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA))
    throw std::invalid_argument(
        fmt::format("backend 'nccl': libtorch {} has CUDA, but this build of shoal does not know its NCCL; CPU tensors "
                    "go by 'auto'",
                    TORCH_VERSION));
  throw std::invalid_argument(
      fmt::format("backend 'nccl': libtorch {} here is the one for CPUs, without CUDA and NCCL; the wheel of torch {} "
                  "for CUDA has them "
                  "(pip install torch=={} from an index of PyTorch for CUDA). CPU tensors go by 'auto'",
                  TORCH_VERSION, TORCH_VERSION, TORCH_VERSION));
}

std::optional<CpuBackend> find(const std::string& name) {
  for (const CpuBackend backend : {CpuBackend::automatic, CpuBackend::shm, CpuBackend::gloo})
    if (name == text_of(backend)) return backend;
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& text, const std::string& name) {
  throw std::invalid_argument(fmt::format(
      "backend '{}'{}: there are auto, shm, gloo and nccl, or one for each kind of device as in 'cpu:gloo,cuda:nccl'",
      text, name == text ? "" : fmt::format(" has '{}'", name)));
}

}  // namespace

const char* text_of(CpuBackend backend) {
  switch (backend) {
    case CpuBackend::automatic:
      return "auto";
    case CpuBackend::shm:
      return "shm";
    case CpuBackend::gloo:
      return "gloo";
  }
  return "auto";
}

CpuBackend parse_backend(const std::string& text) {
  if (text == "nccl") refuse_nccl();
  if (text.find(':') == std::string::npos) {
    const auto found = find(text);
    if (!found) refuse(text, text);
    return *found;
  }
  std::optional<CpuBackend> cpu;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    const std::size_t colon = entry.find(':');
    const std::string device = entry.substr(0, colon);
    const std::string name = colon == std::string::npos ? "" : entry.substr(colon + 1);
    if (device == "cuda") {
      if (name == "nccl") refuse_nccl();
      if (!find(name)) refuse(text, entry);
      throw std::invalid_argument(
          fmt::format("backend '{}': '{}' does not take CUDA tensors here; only nccl would", text, name));
    }
    if (device != "cpu" || cpu || !(cpu = find(name))) refuse(text, entry);
    begin = end + 1;
  }
  if (!cpu) refuse(text, text);
  return *cpu;
}

}  // namespace shoal
