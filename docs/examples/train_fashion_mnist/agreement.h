// What all ranks agree on: sums, and whether they stop.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <shoal/workers/train/join.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Collective, and so a barrier: the sum, the largest one, whether one says so.
double sum_of(const Group& group, double own);
std::int64_t largest_of(const Group& group, std::int64_t own);
bool any_of(const Group& group, bool own);

/// The ranks agree after each step on whether one of them was asked to stop (shoal::stop_requested()), so that all stop
/// after the same one. A Joinable, because in a Join ranks without a batch have to take part in the others' collectives,
/// this one, too. One thread of each rank.
class StopVote : public shoal::Joinable {
 public:
  explicit StopVote(Group group) : group_(std::move(group)) {}

  /// Collective; matched in a Join.
  bool stops();

  Group join_group() const override { return group_; }
  void set_join(shoal::Join* join) override { join_ = join; }
  void shadow(const shoal::JoinStep& step) override;
  void end_join(int root) override;

 private:
  Group group_;
  shoal::Join* join_ = nullptr;
};
