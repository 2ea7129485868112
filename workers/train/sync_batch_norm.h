// SyncBatchNorm: batch norm over the batches of all ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <iosfwd>
#include <optional>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// Those of torch's batch norms.
struct SyncBatchNormOptions {
  std::int64_t num_features = 0;         ///< size of the input's second dimension
  double eps = 1e-5;                     ///< added to variances
  std::optional<double> momentum = 0.1;  ///< of the running values; none: the mean of all steps
  bool affine = true;                    ///< whether there are weight and bias
  bool track_running_stats = true;       ///< whether there are running values, for evaluation
};

/// The parameters and buffers of a batch norm, some of them undefined.
struct SyncBatchNormTensors {
  at::Tensor weight;               ///< each as SyncBatchNormImpl's member of the name
  at::Tensor bias;                 ///< see weight
  at::Tensor running_mean;         ///< see weight
  at::Tensor running_var;          ///< see weight
  at::Tensor num_batches_tracked;  ///< see weight
};

/// Batch norm whose mean and variance are those of all ranks' batches together, like torch.nn.SyncBatchNorm, for CPU
/// tensors of two dimensions and more: the numbers of one process with the whole batch, up to the order of sums. Ranks
/// may have batches of different sizes, also empty ones. Parameters and buffers have the names of torch's. Half types
/// (bfloat16, float16) are computed with in float and rounded once; their parameters and buffers may be float.
///
///   shoal::SyncBatchNorm norm({.num_features = 64});   // without a group: this process's batch alone
///   shoal::convert_sync_batch_norm(*net, process_group);
///
/// While training, forward() and its backward pass are a collective each: all ranks run the same ones in the same
/// order, also under no_sync(). In evaluation there is none. If a rank dies, they throw PeerDied. All ranks get the same
/// bits for mean and variance.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  /// Norms its own process's batch until set_group().
  explicit SyncBatchNormImpl(const SyncBatchNormOptions& options);
  /// Takes another batch norm's tensors, as they are.
  SyncBatchNormImpl(const SyncBatchNormOptions& options, const SyncBatchNormTensors& tensors);

  void reset() override;                                   ///< new parameters and buffers, as torch's batch norms begin
  at::Tensor forward(const at::Tensor& input);             ///< a tensor of the input's shape
  void pretty_print(std::ostream& stream) const override;  ///< name and options

  void set_group(c10::intrusive_ptr<c10d::ProcessGroup> process_group);  ///< null: this process's batch alone

  SyncBatchNormOptions options;    ///< as given
  at::Tensor weight;               ///< undefined without `affine`, as bias
  at::Tensor bias;                 ///< added last
  at::Tensor running_mean;         ///< undefined without `track_running_stats`, as the next two
  at::Tensor running_var;          ///< unbiased
  at::Tensor num_batches_tracked;  ///< steps of training

 private:
  void take(const SyncBatchNormTensors& tensors);

  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
};

/// The module's holder, as torch's modules have one.
class SyncBatchNorm : public torch::nn::ModuleHolder<SyncBatchNormImpl> {
 public:
  using torch::nn::ModuleHolder<SyncBatchNormImpl>::ModuleHolder;
  using Impl = SyncBatchNormImpl;  ///< the module
};

/// Makes every batch norm below `root` a SyncBatchNorm of this group: those in a Sequential, ModuleList or ModuleDict
/// are replaced by one with the same parameters and buffers, and SyncBatchNorms get the group. Call it before the
/// optimizer and DistributedDataParallel are made. What a list or dict holds has another type then: a forward() that
/// asks it for a batch norm (`list->at<torch::nn::BatchNorm2dImpl>(0)`) has to ask for a SyncBatchNormImpl. A member
/// `torch::nn::BatchNorm2d norm` of a class cannot become another type: then nothing is changed, and it throws
/// std::invalid_argument, which names all of those. Declare them as shoal::SyncBatchNorm.
void convert_sync_batch_norm(torch::nn::Module& root, const c10::intrusive_ptr<c10d::ProcessGroup>& process_group);

}  // namespace shoal
