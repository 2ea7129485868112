// The sum of all ranks' sparse tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/communicator.h>

#include <string>
#include <vector>

namespace shoal {

/// all_reduce() of a COO tensor: every rank moves its own into the heap, all read them there and add them in the order of
/// ranks, so all get the same bits. Throws CollectiveMismatch on all ranks if sizes, element types, dimensions or
/// operations differ, std::invalid_argument if the operation is neither sum nor avg.
void all_reduce_sparse(Communicator& ranks, const at::Tensor& tensor, ReduceOp op);

/// What a rank gives to it, for people: ranks whose texts are the same fit.
std::string describe_sparse(const at::Tensor& tensor, ReduceOp op);
/// tensor = the sum or average of the ranks' coalesced tensors, in their order. Throws std::invalid_argument for another
/// operation.
void write_sparse_reduction(const at::Tensor& tensor, const std::vector<at::Tensor>& parts, ReduceOp op);

}  // namespace shoal
