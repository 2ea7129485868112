#include <shoal/internal/tensors/driver/cuda_driver.h>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <shoal/internal/tensors/driver/device_memory.h>

#include <string_view>

namespace shoal {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

/// RTLD_NOLOAD looks through all folders for what is not loaded, and each start of a process by fork asks.
bool may_be_loaded() {
  auto is_driver = [](dl_phdr_info* image, std::size_t, void*) {
    return int(std::string_view(image->dlpi_name).find("libcuda.so") != std::string_view::npos);
  };
  return ::dl_iterate_phdr(is_driver, nullptr) != 0;
}

}  // namespace

const CudaDriver* CudaDriver::load(std::string& missing) {
  // Never unloaded: the driver's threads and contexts last as long as the process.
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const char* why = ::dlerror();
    missing = fmt::format("no CUDA driver on this machine ({})", why ? why : kLibrary);
    return nullptr;
  }
  static CudaDriver driver;
#define SHOAL_CUDA_TEXT_OF(name) #name
#define SHOAL_CUDA_TEXT(name) SHOAL_CUDA_TEXT_OF(name)  // expands the header's macro first: the versioned name
#define SHOAL_CUDA_FIND(name)                                                                     \
  driver.name = reinterpret_cast<decltype(driver.name)>(::dlsym(library, SHOAL_CUDA_TEXT(name))); \
  if (!driver.name) {                                                                             \
    missing = fmt::format("the CUDA driver has no {}: it is too old", SHOAL_CUDA_TEXT(name));     \
    return nullptr;                                                                               \
  }
  SHOAL_CUDA_FUNCTIONS(SHOAL_CUDA_FIND)
#undef SHOAL_CUDA_FIND
  return &driver;
}

CUresult (*CudaDriver::loaded_device_count())(int*) {
  void* library = may_be_loaded() ? ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (!library) return nullptr;
  auto* count = reinterpret_cast<CUresult (*)(int*)>(::dlsym(library, "cuDeviceGetCount"));
  ::dlclose(library);  // what NOLOAD added to its count of users
  return count;
}

std::string CudaDriver::describe(CUresult result) const {
  const char *error = nullptr, *text = nullptr;
  cuGetErrorName(result, &error);
  cuGetErrorString(result, &text);
  return fmt::format("{} ({}): {}", error ? error : "an unknown error", int(result), text ? text : "no description");
}

void CudaDriver::check(CUresult result, const char* what) const {
  if (result != CUDA_SUCCESS) throw DeviceError(fmt::format("{}: {}", what, describe(result)));
}

}  // namespace shoal
