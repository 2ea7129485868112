// The mean of gradients in the Reducer's buckets, without the Reducer's step.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <shoal/internal/workers/train/ddp/ddp_options.h>
#include <shoal/internal/workers/train/ddp/module_check.h>
#include <shoal/internal/workers/train/ddp/module_parts.h>
#include <shoal/internal/workers/train/group/forward_pass.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class GradBucket;
class ProcessGroup;
}  // namespace c10d

namespace shoal {

/// What is left of a step of the Reducer where nothing can differ from one step to the next: each gradient that comes is
/// copied into its bucket and lies there from then on, and buckets that are full are reduced, one after the other. The
/// Reducer makes the buckets, and its first step finds the order in which gradients come. After that nobody asks it:
/// the views, futures and calls that it makes anew in each step take as long as the reduction of 1 MiB. So does the
/// copying: in models of up to kMostPlaced bytes a bucket has a second memory, in which large gradients are made
/// (GradientPlacement). The Reducer's is for the steps that it leads, and for those in which something else has come to
/// lie in the other. In larger models a step takes so long that one does not see the copy, and one would see the memory.
///
/// The collectives are those of the Reducer with the hook that makes the mean, so one rank may go this way while the
/// Reducer leads another. Owned by a GradientReducer. Threads: gradients may come in several, if each runs the backward
/// pass of a part of the result. If a rank dies, the collective that meets it throws PeerDied, out of backward(). So does
/// Error, if a gradient that has come is another one, and so not the mean, when the pass ends.
class DirectReduction {
 public:
  static constexpr std::size_t kMostPlaced = std::size_t(64) << 20;

  /// Whether this is all that is asked for: the gradients of all parameters, dense ones of the CPU that stay in their
  /// buckets, and collectives that make the mean themselves.
  static bool is_enough(const DistributedDataParallelOptions& options, const ModuleParts& parts,
                        const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);

  /// `buckets`: the Reducer's, after it has made them for good. They have all of `parameters`.
  DirectReduction(const NamedTensorList& parameters, const std::vector<c10d::GradBucket>& buckets,
                  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);
  ~DirectReduction();

  /// A forward pass has ended whose backward pass reduces: the next one does, and none after it. `pass`: what its
  /// collectives belong to.
  void begin_pass(const GroupsPass& pass);
  /// The Reducer leads the next one.
  void end_pass();
  /// Parameters that got no gradient in the last backward pass of that kind, which can therefore not have ended. Empty if
  /// it has ended, or has not begun.
  std::vector<std::string> without_gradient() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shoal
