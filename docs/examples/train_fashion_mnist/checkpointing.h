// When a rank saves, in each mode.
#pragma once

#include <shoal/workers/checkpoint/checkpoints.h>

#include <cstdint>
#include <optional>

#include "train_fashion_mnist/agreement.h"
#include "train_fashion_mnist/job.h"

/// Checkpoints of a training, if there are any (--checkpoint). Each rank writes its shard: in the background after steps and
/// epochs, and before it returns if it was asked to stop. hogwild's ranks are not in step, and in a Join those without a
/// batch have old parameters: these save only when all have met. One thread.
class Checkpointing {
 public:
  Checkpointing(const Job& job, int rank, Group group);

  /// What is saved: to be filled before load().
  shoal::CheckpointParts& parts() { return parts_; }
  /// The step that the training goes on after; 0 at its beginning. Collective.
  std::int64_t load();
  /// Whether all ranks stop because one was asked to. Collective, but in hogwild.
  bool stops_after_step();
  void after_step(std::int64_t step);
  /// Collective.
  void after_epoch(std::int64_t step);
  /// Saves, and returns when the disk has it, so that the process may end. All ranks give the same step.
  void save_and_stop(std::int64_t step);
  /// Returns when all is on disk.
  void finish();

  /// Whether ranks vote after each step.
  bool votes() const { return checkpoints_.has_value(); }
  StopVote& vote() { return vote_; }

 private:
  const Job& job_;
  int rank_;
  Group group_;
  StopVote vote_;
  shoal::Event stop_;
  std::int64_t every_;
  shoal::CheckpointParts parts_;
  std::optional<shoal::Checkpoints> checkpoints_;
};
