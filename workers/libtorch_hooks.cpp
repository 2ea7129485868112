// What the life of processes has to know of libtorch: runtime/ does not, so it is told here.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <shoal/internal/tensors/driver/device_memory.h>
#include <shoal/runtime/hooks.h>
#include <shoal/tensors/codec.h>

namespace {

/// libtorch makes a pool of that many threads at once, even if it had that number already.
void set_threads(int threads) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

/// Done once in the fork server, so that each child finds it done: the dispatcher's tables, the kernels' choice for
/// this CPU, the first pages of the allocators. Small enough that libtorch starts no thread for it.
void warm_up() {
  set_threads(at::get_num_threads());  // no change, but what asks for it is looked up
  at::Tensor small = at::ones({4, 4});
  (void)small.matmul(small).add(small).sum().item<float>();
}

}  // namespace

/// Named to the linker (workers/CMakeLists.txt): nothing else would pull this file out of a static library.
extern "C" {
extern const int shoal_libtorch_hooks;
const int shoal_libtorch_hooks = [] {
  shoal::register_preload(&warm_up);
  shoal::register_thread_setter(&set_threads);
  shoal::register_fork_refusal(&shoal::device_fork_refusal);
  return 1;
}();
}
