// Who says where the CPU tensors lie that libtorch makes.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>

namespace shoal {

/// Asked by a thread for the memory of each CPU tensor that libtorch makes in it, whatever operation makes it.
class TensorPlacement {
 public:
  virtual ~TensorPlacement() = default;
  /// Memory for so many bytes: private_allocator()'s, or any other that is aligned to 64 bytes as that is. Makes no
  /// tensors itself.
  virtual c10::DataPtr allocate(std::size_t bytes) = 0;
};

/// From now on this thread asks `placement`, outside of SharedMemoryScopes, until it is told of another one or this one
/// is destroyed.
void place_tensors(const std::shared_ptr<TensorPlacement>& placement);

/// If this thread asks `placement`, it asks nobody from now on.
void stop_placing_tensors(const TensorPlacement& placement);

/// libtorch's own allocator, whoever is asked before it.
c10::Allocator* private_allocator();

}  // namespace shoal
