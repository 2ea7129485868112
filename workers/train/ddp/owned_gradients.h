// Gradients of this rank's part of the parameters alone (ZeRO, stage 2).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/internal/workers/train/ddp/bucket_memory.h>
#include <shoal/internal/workers/train/ddp/module_check.h>
#include <shoal/workers/train/comm_hook.h>
#include <shoal/workers/train/gradient_owners.h>

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

namespace c10d {
class GradBucket;
}

namespace shoal {

/// The views of a bucket's buffer that are these parameters' gradients, in the parameters' order, shapes and strides.
/// (c10d's own have rows one after the other, whatever the parameter's strides are.)
std::vector<at::Tensor> gradients_in(const at::Tensor& buffer, const std::vector<at::Tensor>& parameters);

/// What the Reducer does not know: that neither gradients of others' parameters nor buckets have to stay. A bucket has
/// memory from its first gradient until it is reduced, when each owner copies its gradients out. Until the pass ends the
/// parameters' gradients are still the Reducer's views of buckets, which keep their sizes and lose what was there
/// (BucketMemory). Then own parameters have their gradients, and the others none.
///
/// Owned by a GradientReducer, and called by the thread of the backward pass; what a collective's thread does here is
/// over before the Reducer's wait for it ends. Sparse gradients stay whole.
class OwnedGradients : public std::enable_shared_from_this<OwnedGradients> {
 public:
  /// Collective. Throws std::invalid_argument for a parameter without an owner, an owner that is no rank, and if the
  /// ranks differ in the owners.
  OwnedGradients(const NamedTensorList& parameters, const std::vector<bool>& expect_sparse,
                 const GradientOwners& owners, c10::intrusive_ptr<c10d::ProcessGroup> process_group);

  /// The Reducer has made these buckets: takes their memory away.
  void adopt(const std::vector<c10d::GradBucket>& buckets);
  /// Before new buckets are made where an exception has ended a pass: its gradients are views of what is not there.
  void drop_views();
  /// A forward pass has ended whose backward pass reduces: what the Reducer writes to without a gradient's coming needs
  /// memory. `all`: to any bucket; otherwise to those of parameters that get none, as was seen in an earlier pass.
  enum class Writes { to_used, to_all, to_unused_ones };
  void begin_pass(Writes writes);
  /// This parameter's gradient comes, and is added to what there is. `syncs`: and then goes to its bucket.
  void comes(std::size_t parameter, bool syncs, int divisor);
  /// Reduces a bucket, the Reducer's or a shadow's.
  HookResult reduce(const GradBucket& bucket);
  /// Callbacks have run at the end of a backward pass, or of one inside it.
  void end_pass();
  /// What reduce() has left for the parameter, once; undefined if this rank does not own it.
  at::Tensor take(const at::Tensor& parameter);

 private:
  struct Owned {
    at::Tensor parameter;
    bool sparse = false, mine = false;
    bool comes = false;        // in some pass a gradient came
    bool reduced = false;      // the gradient that it has is the mean over all ranks
    at::Tensor gradient = {};  // the mean, until the pass ends
    std::size_t bucket = 0;
  };
  c10::StorageImpl& storage_of(const Owned& owned) const { return *buckets_[owned.bucket].unsafeGetStorageImpl(); }

  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  std::vector<Owned> parameters_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_;
  std::vector<c10::Storage> buckets_;  // of dense gradients
  std::size_t reduced_buckets_ = 0;    // of this pass
  BucketMemory memory_;
};

}  // namespace shoal
