// Tensors that are born shared.
#pragma once

namespace shoal {

/// While one lives, every CPU tensor that libtorch makes *in this thread* lies in the shared heap from
/// the start: no later copy. Nests. Other threads, and storages made before, are not touched. What a
/// scope's tensors hold stays shared after it. RAII; one thread.
class SharedMemoryScope {
 public:
  SharedMemoryScope();
  SharedMemoryScope(const SharedMemoryScope&) = delete;
  SharedMemoryScope& operator=(const SharedMemoryScope&) = delete;
  ~SharedMemoryScope();
};

}  // namespace shoal
