// A tensor's elements as contiguous bytes, for collectives.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/communicator.h>

namespace shoal {

/// The tensor's own memory, or a copy if that is not contiguous. Throws std::invalid_argument, which begins with
/// `what`, for tensors that are undefined, not strided or not on the CPU.
class TensorBytes {
 public:
  TensorBytes(const at::Tensor& tensor, const char* what);

  Region region() const;
  std::byte* data() const { return region().data; }
  /// Brings what was written back to the tensor.
  void write_back();

 private:
  at::Tensor tensor_;
  at::Tensor dense_;
  bool plain_;
};

}  // namespace shoal
