#include <shoal/internal/runtime/os/openmp_threads.h>

#include <dlfcn.h>

namespace shoal {

void end_openmp_threads() noexcept {
  // By name: this library is linked to none. What the program or libtorch brings along is looked up first to last.
  constexpr int kHard = 2;  // omp_pause_hard
  if (auto* pause = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_DEFAULT, "omp_pause_resource_all"))) pause(kHard);
}

}  // namespace shoal
