// How a rank computes and steps: what differs between the modes.
#pragma once

#include <shoal/workers/train/data_parallel.h>
#include <shoal/workers/train/distributed_data_parallel.h>
#include <shoal/workers/train/join.h>

#include <optional>

#include "train_fashion_mnist/agreement.h"
#include "train_fashion_mnist/job.h"
#include "train_fashion_mnist/network.h"
#include "train_fashion_mnist/optimizer.h"

/// A rank's network and optimizer. single: alone. ddp: gradients are the mean over the ranks. hogwild: the parent's very
/// network, which all ranks change. data_parallel: parts of each batch go to worker processes. One thread.
class Learner {
 public:
  /// Collective in mode ddp.
  Learner(const Job& job, const SharedOptimizer& optimizer, Group group);

  /// Class scores of these images. Without gradients no collective: ranks may have different numbers of batches.
  at::Tensor scores(const at::Tensor& images);
  /// One step with the gradient of the mean loss of a batch, at this learning rate. Returns the loss.
  double learn(const at::Tensor& images, const at::Tensor& labels, double rate);

  /// What ends together in a Join, in mode ddp.
  shoal::Joinable& joinable() { return ddp_->joinable(); }
  /// After a Join: gives all ranks the optimizer's state of `root`, which has done the last step. Collective.
  void take_optimizer_state_of(int root);

  /// Parts "model" and "optimizer". This object has to outlive the parts.
  void add_to(shoal::CheckpointParts& parts);
  Network& network() { return network_; }
  /// How many numbers are learned.
  std::int64_t parameters() const;

 private:
  Network network_;
  Group group_;
  std::optional<shoal::DistributedDataParallel<Network>> ddp_;
  std::optional<shoal::DataParallel<Network>> parallel_;
  AnyOptimizer optimizer_;
};
