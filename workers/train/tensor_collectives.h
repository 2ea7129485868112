// Collectives of tensors, without libtorch's process groups.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/communicator.h>

#include <vector>

namespace shoal {

/// The collectives of Communicator for CPU tensors of any strides, which need none of c10d's headers. All ranks give
/// tensors of one size and element type; those in the shared heap are worked on in place. Errors are Communicator's,
/// and std::invalid_argument for tensors that are undefined, sparse or on a device.
///
///   at::Tensor right = (output.argmax(1) == labels).sum();
///   shoal::all_reduce(ranks, right);

/// tensor = the reduction of all ranks' tensors.
void all_reduce(Communicator& ranks, const at::Tensor& tensor, ReduceOp op = ReduceOp::sum);
/// The same on root; the others' tensors are left alone.
void reduce(Communicator& ranks, const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum);
/// tensor = root's tensor.
void broadcast(Communicator& ranks, const at::Tensor& tensor, int root = 0);
/// Every rank's tensor, in the order of ranks: new, contiguous ones, of the shape of this rank's.
std::vector<at::Tensor> all_gather(Communicator& ranks, const at::Tensor& tensor);
/// The same on root; nothing on the others.
std::vector<at::Tensor> gather(Communicator& ranks, const at::Tensor& tensor, int root = 0);

}  // namespace shoal
