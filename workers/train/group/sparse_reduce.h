// The sum of all ranks' sparse tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/communicator.h>

namespace shoal {

/// all_reduce() of a COO tensor: every rank moves its own into the heap, all read them there and add them in the order of
/// ranks, so all get the same bits. Throws std::invalid_argument on all ranks if sizes, element types, dimensions or
/// operations differ, or the operation is neither sum nor avg.
void all_reduce_sparse(Communicator& ranks, const at::Tensor& tensor, ReduceOp op);

}  // namespace shoal
