// The options of DistributedDataParallel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// What becomes of buffers (running means of batch norms, for example) with each forward pass.
enum class BufferSync {
  broadcast_before,  ///< all ranks begin with rank 0's
  broadcast_after,   ///< all ranks end with rank 0's: they are equal whenever somebody looks
  average_before,    ///< all ranks begin with the mean of all; of those that count, with rank 0's
  average_after,     ///< all ranks end with the mean of all; of those that count, with rank 0's
};

/// The options of torch.nn.parallel.DistributedDataParallel.
struct DistributedDataParallelOptions {
  /// Gradients are reduced in buckets of this many bytes. The first bucket is smaller, so that the first reduction
  /// starts early.
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;  ///< of the first one
  /// Looks for parameters that a forward pass does not use, or that are frozen now. Costs a walk over the graph.
  bool find_unused_parameters = false;
  /// Gradients lie in the buckets: no copy back. Optimizers may set them to none or to zero.
  bool gradient_as_bucket_view = true;
  /// Whether buffers are kept equal at all: `buffer_sync` says how. Without it each rank keeps its own, also where a Join ends.
  bool broadcast_buffers = true;
  BufferSync buffer_sync = BufferSync::broadcast_before;  ///< how buffers are kept equal
  /// Every forward pass uses the same parameters in the same way. The first step finds out which, and reduces at the end
  /// of its backward pass. Parameters may then be used several times, also by checkpointed segments that run their
  /// forward pass again in the backward pass; and unused ones cost no walk.
  bool static_graph = false;
  /// Whether the constructor gives all ranks rank 0's parameters and buffers. Without it the caller has made them equal.
  bool init_sync = true;
  bool init_sync_buffers = true;  ///< whether buffers are among them
  /// Buckets whose parameters are all unused are not reduced. With find_unused_parameters, and only if all ranks always
  /// leave the same ones unused; otherwise they get CollectiveMismatch from the backward pass.
  bool skip_all_reduce_unused_params = false;
  /// Names of parameters and buffers that are left alone: neither made equal nor reduced.
  std::vector<std::string> ignored = {};
  /// Names of parameters whose gradients are reduced in one piece at the end of the backward pass, however often they
  /// are used. Dense ones: others are refused.
  std::vector<std::string> delayed = {};
  /// Names of parameters whose gradients are sparse, besides those of sparse Embedding and EmbeddingBag.
  std::vector<std::string> sparse = {};
};

}  // namespace shoal
