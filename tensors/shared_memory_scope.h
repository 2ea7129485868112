// Tensors that are born shared.
#pragma once

namespace shoal {

/// Whose tensors are born shared.
struct SharedMemoryScopeOptions {
  /// Whether the scope covers all threads of this process: libtorch's own that work for this one (its intra-op pool,
  /// autograd's), and the program's.
  bool all_threads = false;
};

/// While such an object lives, every CPU tensor that libtorch makes *in this thread* lies in the shared heap from the
/// start, so that sending it copies nothing. Scopes nest, also with those of other threads. They do not touch storages
/// made before, or other threads unless `all_threads` is set. What a scope's tensors hold stays shared after it. RAII;
/// one thread. A process forked inside a scope of all threads is inside it, too, if the thread that has the scope forks
/// it.
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

}  // namespace shoal
