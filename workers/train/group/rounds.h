// The rounds of a group: announcing, waiting for all ranks, and noticing that one is dead.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/base/spin.h>
#include <shoal/internal/ipc/process/death_watch.h>
#include <shoal/internal/workers/train/group/group_layout.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

namespace shoal {

/// One rank's view of the group's rounds (see RankLayout). Owned by its Communicator and used by one
/// thread at a time. When a rank dies or leaves, every wait that depends on it ends with PeerDied
/// within two liveness slices, and from then on every call throws the same: what the ranks have of an
/// unfinished collective differs, so there is no going on. A rank that has waited too long breaks the group
/// likewise: it gets TimeoutError, and so do all others, which name it.
class Rounds {
 public:
  /// Joins as this rank. Throws std::invalid_argument if somebody has before.
  Rounds(GroupLayout& layout, int rank);
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;
  /// Leaves: others that wait for this rank get PeerDied.
  ~Rounds();

  int rank() const { return rank_; }
  int world_size() const { return int(layout_.world_size); }
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }
  /// CPUs that a rank and what it works with keep busy: 1 without this call. A rank that has fewer for itself gives its
  /// CPU away while it waits (Spinner::Turns::yields).
  void set_cpus_needed(double cpus) { cpus_needed_ = cpus, has_met_ = false; }
  /// Called with the ranks that have not come, before this rank reports and throws: the report takes some time, and who
  /// else is to know of them shall not wait for it.
  void set_when_late(std::function<void(const std::vector<int>&)> told) { when_late_ = std::move(told); }
  /// Ends this rank's wait, and all later ones: they throw Error. Threads: any.
  void abort() noexcept;
  /// Ends the waits of all ranks, and all later ones: they throw Error, which names this one. Threads: any.
  void abort_for_all() noexcept;

  /// Throws if the group is broken, or this process is a forked copy of the rank. To be called before anything of the
  /// next round is written: a slower rank may still be reading what the round before the last left there.
  void check_usable() const;
  /// To be filled in before signal().
  Announcement& own_announcement() { return mine().announcements[(round_ + 1) & 1]; }
  /// A rank's announcement of the round that was last waited for.
  const Announcement& announcement(int rank) const { return layout_.rank(rank).announcements[round_ & 1]; }

  /// Which of the stages belongs to the round that the next signal() ends. The other two belong to the
  /// two rounds before it, so a stage may be filled as soon as the round before the last was waited for.
  std::uint32_t next_stage() const { return stage_; }
  std::uint32_t last_stage() const { return (stage_ + GroupLayout::kStages - 1) % GroupLayout::kStages; }
  std::uint32_t stage_before_last() const { return (stage_ + 1) % GroupLayout::kStages; }

  /// Ends this rank's part of a round.
  void signal();
  /// Waits until all ranks have ended theirs. `what` names the operation in errors. Throws PeerDied,
  /// TimeoutError.
  void wait(const char* what);

 private:
  /// Throws if a rank that has not ended its part of the last signalled round never will.
  void check_peers(const char* what);
  RankLayout& mine() { return layout_.rank(rank_); }
  /// Throws if a rank has given up or aborted the group, whether it ended its part or not.
  void check_nobody_gave_up(const char* what);
  bool has_arrived(RankLayout& peer) const;
  void wait_for(RankLayout& peer, const char* what, std::optional<Deadline>& deadline);
  /// Says once in a group's life, in one line of the log, which ranks have not joined, if this one has waited for a while.
  void tell_of_absent(const char* what);
  void give_up(const char* what);
  [[noreturn]] void fail(std::exception_ptr error, int culprit);

  GroupLayout& layout_;
  int rank_;
  std::uint32_t fork_count_;  // of the process that joined: a forked copy of this object is not the rank
  std::uint32_t round_;       // last one signalled
  std::uint32_t stage_ = 0;
  std::chrono::nanoseconds timeout_ = std::chrono::minutes(30);
  std::exception_ptr broken_;
  std::function<void(const std::vector<int>&)> when_late_;
  std::atomic<bool> aborted_{false};
  double cpus_needed_ = 1;
  bool has_met_ = false;              // all ranks have joined
  std::optional<Deadline> tells_at_;  // of those that have not joined, while it waits for them
  Spinner::Turns turns_ = Spinner::Turns::pauses;
  DeathWatch death_watch_;  // who waits here is to learn of a death at once
};

}  // namespace shoal
