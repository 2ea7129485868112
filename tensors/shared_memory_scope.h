// Tensors that are born shared.
#pragma once

namespace c10 {
struct Allocator;
}

namespace shoal {

/// Whose tensors are born shared.
struct SharedMemoryScopeOptions {
  /// Also what other threads of this process make meanwhile: libtorch's own (its intra-op pool, autograd's) that work
  /// for this one, and the program's.
  bool all_threads = false;
};

/// While one lives, every CPU tensor that libtorch makes *in this thread* lies in the shared heap from
/// the start: no later copy. Nests, also with those of other threads. Other threads, unless asked for, and storages
/// made before are not touched. What a scope's tensors hold stays shared after it. RAII; one thread. A process that is
/// forked inside a scope of all threads is inside it too, if it has the thread that is.
class SharedMemoryScope {
 public:
  /// Begins; the end is the object's.
  explicit SharedMemoryScope(SharedMemoryScopeOptions options = {});
  SharedMemoryScope(const SharedMemoryScope&) = delete;
  SharedMemoryScope& operator=(const SharedMemoryScope&) = delete;
  ~SharedMemoryScope();

 private:
  const SharedMemoryScopeOptions options_;
};

/// libtorch's own allocator, whatever scope the caller is in. Not for users.
c10::Allocator* private_allocator();

}  // namespace shoal
