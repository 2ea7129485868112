// Join: ranks with different numbers of batches train to their common end.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

class Join;

/// Who does what in the step that begins: the same on all ranks.
struct JoinStep {
  int active = 0;               ///< ranks that have a batch for it
  int first_active = 0;         ///< the lowest of them; in the step after the last, the last step's
  bool syncs = true;            ///< whether they reduce their gradients in it
  std::vector<int> ended = {};  ///< ranks that have none any more
};

/// What does collectives in each step of a training: DistributedDataParallel, ZeroRedundancyOptimizer, or a class of the
/// user's. All ranks give Join the same ones in the same order.
class Joinable {
 public:
  Joinable() = default;
  Joinable(const Joinable&) = delete;
  Joinable& operator=(const Joinable&) = delete;
  virtual ~Joinable() = default;

  virtual c10::intrusive_ptr<c10d::ProcessGroup> join_group() const = 0;  ///< the group of its collectives
  /// Says in which Join it is; null: in none any more. What it throws where it cannot be in one comes out of Join's constructor. In one it calls Join::announce() before a step's first collective.
  virtual void set_join(Join* join) = 0;
  /// Whether its last step did not come to its end on this rank, because of an exception here or on another one.
  virtual bool has_failed() const { return false; }
  /// Collective, on all ranks for all joinables in their order, where one has failed: makes this one fit for the next step.
  virtual void start_anew() {}
  /// Whether it calls Join::announce() in each step. One that does not has no collective in a step.
  virtual bool has_turn() const { return true; }
  /// On a rank that has no batch: takes part in all collectives of one step of those that have one.
  virtual void shadow(const JoinStep& step) = 0;
  /// On all ranks when none has a batch left. `root` has taken part in the last step, so its state is the newest.
  virtual void end_join(int root) = 0;
};

/// By what gradients are divided.
enum class JoinMean {
  over_ranks_with_data,  ///< by the number of ranks that have a batch: each batch counts as in any other step
  over_all_ranks,        ///< by the number of ranks: the fewer have a batch, the smaller the step
};

/// How a Join joins.
struct JoinOptions {
  JoinMean mean = JoinMean::over_ranks_with_data;  ///< by what gradients are divided
  bool throw_when_one_ends = false;                ///< all ranks get Error as soon as one has no batch and others have
};

/// While such an object lives, the ranks' numbers of steps may differ, like torch.distributed.algorithms.Join:
///
///   shoal::Join join({ddp.joinable(), optimizer});
///   for (auto& batch : loader) { ... ddp.forward(...) ... optimizer.step(); }
///   join.finish();
///
/// A rank whose loop has ended takes part in the others' collectives inside finish(), which returns on all ranks when
/// all have come there, and then gives all of them the parameters of one that did the last step. Each step costs a
/// gather of a few bytes more. Collectives of the user's own inside the loop, also SyncBatchNorm's, are not matched.
///
/// One thread of each rank. If a rank dies, the others get PeerDied, in finish() too. If an exception ends one rank's
/// pass and its loop goes on, all joinables of all ranks start anew; ranks in finish() say so in the log. Without finish()
/// (an exception goes through the loop) the object just ends: the others are told by their collectives. If no exception
/// does, it was forgotten, and ranks with more batches wait for this one until it calls another collective or ends: the
/// log has a warning.
class Join {
 public:
  /// Throws std::invalid_argument if there are no joinables, if they have several groups, or if one is in a Join already.
  explicit Join(std::vector<std::reference_wrapper<Joinable>> joinables, const JoinOptions& options = {});
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;
  ~Join();

  /// Collective, and returns on all ranks at once: nothing is in the Join any more.
  void finish();

  /// For joinables: this rank has a batch. The first joinable's call is a collective, the others' get what that one
  /// got; if a joinable has failed, all start anew before. Throws std::invalid_argument on all ranks if they differ in
  /// `syncs`, and for one that comes out of its turn; Error as the options say, and for one that has failed within this step:
  /// the next one begins with the first.
  const JoinStep& announce(const Joinable& joinable, bool syncs);
  /// For joinables, of a collective of theirs that comes before the one that they announce: the step in which it is
  /// theirs to do. Throws as announce() does, and is no collective. Not for the first one.
  const JoinStep& in_turn(const Joinable& joinable) const;
  /// For joinables: whether all ranks have met for the step, also where announce() has thrown.
  bool has_met() const { return has_met_; }
  /// For joinables: by what the gradients of this step are divided.
  int divisor() const;

 private:
  std::size_t place_of(const Joinable& joinable) const;
  void check_turn(const Joinable& joinable, std::size_t place) const;
  void meet(bool has_data, bool syncs);
  void shadow_step();
  bool any_failed() const;
  void start_anew();
  void leave();

  std::vector<std::reference_wrapper<Joinable>> joinables_;
  JoinOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
  JoinStep step_;
  std::int64_t steps_ = 0;
  std::size_t last_ = 0;  // the joinable that came last in the step
  bool has_met_ = false;  // in the last step that was begun
  bool failed_ = false;   // the last meeting threw, or told all ranks something: nobody waits then
  int exceptions_;        // under way when it was made
};

}  // namespace shoal
