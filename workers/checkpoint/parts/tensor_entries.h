// Tensors in a checkpoint: which rank writes which, and how they are read.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/checkpoint/folder/checkpoint_step.h>
#include <shoal/internal/workers/checkpoint/write/shard_contents.h>
#include <shoal/workers/checkpoint/checkpoint_parts.h>

#include <string>
#include <vector>

namespace shoal::detail {

/// For each tensor whether the rank of this shard writes it: of what is equal on all ranks about an equal part of the
/// bytes, the others the rest.
std::vector<bool> written_here(const ShardContents& to, const std::vector<at::Tensor>& tensors, OnRanks on_ranks);

/// Throws CheckpointError if the entry is no tensor of these sizes and this type.
void check_tensor(const CheckpointStep::Found& found, at::IntArrayRef sizes, at::ScalarType type);

/// Reads the entry into the tensor, which check_tensor() found to fit, wherever it lies. Throws CheckpointError.
void read_tensor(const CheckpointStep::Found& found, const at::Tensor& into);

}  // namespace shoal::detail
