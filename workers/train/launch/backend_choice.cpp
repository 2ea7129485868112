#include <shoal/internal/workers/train/launch/backend_choice.h>

#include <fmt/format.h>
#include <shoal/internal/workers/train/nccl/nccl_backend.h>

#include <optional>
#include <stdexcept>

namespace shoal {
namespace {

void check_nccl() {
  if (const std::string why = why_no_nccl(); !why.empty())
    throw std::invalid_argument("backend 'nccl': " + why + ". CPU tensors go by 'auto'");
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

std::string text_of(const BackendChoice& choice) {
  return choice.nccl ? fmt::format("{},cuda:nccl", text_of(choice.cpu)) : text_of(choice.cpu);
}

BackendChoice parse_backend(const std::string& text) {
  if (text == "nccl") {
    check_nccl();
    return {CpuBackend::automatic, true};
  }
  if (text.find(':') == std::string::npos) {
    const auto found = find(text);
    if (!found) refuse(text, text);
    return {*found, *found == CpuBackend::automatic && why_no_nccl().empty()};
  }
  std::optional<CpuBackend> cpu;
  bool nccl = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    const std::size_t colon = entry.find(':');
    const std::string device = entry.substr(0, colon);
    const std::string name = colon == std::string::npos ? "" : entry.substr(colon + 1);
    if (device == "cuda") {
      if (name != "nccl" && !find(name)) refuse(text, entry);
      if (name != "nccl")
        throw std::invalid_argument(
            fmt::format("backend '{}': '{}' does not take CUDA tensors here; only nccl does", text, name));
      if (nccl) refuse(text, entry);
      check_nccl();
      nccl = true;
    } else if (device != "cpu" || cpu || !(cpu = find(name))) {
      refuse(text, entry);
    }
    begin = end + 1;
  }
  return {cpu.value_or(CpuBackend::automatic), nccl};
}

}  // namespace shoal
