// Collectives of tensors, without libtorch's process groups.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/workers/train/communicator.h>

#include <cstdint>
#include <span>
#include <vector>

namespace shoal {

/// Communicator's collectives for CPU tensors of any strides; they need none of c10d's headers. All ranks give tensors
/// of one size and element type. Tensors in the shared heap are worked on in place. They throw what Communicator
/// throws, and std::invalid_argument for tensors that are undefined or on a device, and for sparse ones in any
/// other collective than all_reduce().
///
///   at::Tensor right = (output.argmax(1) == labels).sum();
///   shoal::all_reduce(ranks, right);

/// tensor = the reduction of all ranks' tensors. Sparse (COO) tensors are summed, or averaged, in the order of ranks; they
/// may have different elements on the ranks, and the result has all of them, once each.
void all_reduce(Communicator& ranks, const at::Tensor& tensor, ReduceOp op = ReduceOp::sum);
/// Root's tensor = the reduction of all ranks' tensors; the others' tensors stay as they are.
void reduce(Communicator& ranks, const at::Tensor& tensor, int root, ReduceOp op = ReduceOp::sum);
/// tensor = root's tensor.
void broadcast(Communicator& ranks, const at::Tensor& tensor, int root = 0);
/// Returns every rank's tensor, in the order of ranks, as new contiguous tensors of the shape of this rank's.
std::vector<at::Tensor> all_gather(Communicator& ranks, const at::Tensor& tensor);
/// Like all_gather() on root; returns nothing on the others.
std::vector<at::Tensor> gather(Communicator& ranks, const at::Tensor& tensor, int root = 0);
/// Sends rows of `input`, slices along its first dimension, to all ranks: the first input_splits[0] to rank 0, and so
/// on. `output` gets output_splits[0] rows from rank 0, and so on. Without splits all parts have as many rows as any
/// other. Rows have to be of one size and type on all ranks. The two tensors must not overlap.
void all_to_all_single(Communicator& ranks, const at::Tensor& output, const at::Tensor& input,
                       std::span<const std::int64_t> output_splits = {},
                       std::span<const std::int64_t> input_splits = {});

}  // namespace shoal
