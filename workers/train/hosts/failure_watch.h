// Notices that a rank of any host is gone, and ends the waits of this one.
#pragma once

#include <shoal/internal/workers/train/gloo/gloo_group.h>
#include <shoal/internal/workers/train/hosts/failure_board.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/internal/workers/train/hosts/meeting.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace shoal {

/// One rank's watcher, with a thread of its own. It sees
///
/// - the connections of this rank's column: one that ends, while the rank on its other side has not said that it leaves, is
///   a death, or a link that is lost;
/// - one process of this host, the next rank's (all see one each);
/// - the host's failure board, which another rank of the host has written to.
///
/// For any of these, and when the rank itself reports a failure, it makes sure that the failure is on the board and, for the
/// other hosts, in rank 0's store (the first text that is there counts, so all ranks say the same), and only then ends the
/// connections of the column. That wakes this rank, and the ranks at the other ends, which do the same. Then its thread calls
/// `leave_host`, which has to make this rank leave its host's Communicator unless the rank is in a call: a rank that waits
/// for this one there is woken by that. So every rank in a call is woken: it waits for a connection that ends, or for a rank
/// that leaves or is woken itself.
///
/// Owned by the group's rank. report() and failure() may be called by any thread.
class FailureWatch {
 public:
  /// `column`: null if this rank is in none. All outlive this.
  FailureWatch(const HostMap& map, FailureBoard& board, StoreConnection& store, GlooGroup* column,
               std::function<void()> leave_host);
  FailureWatch(const FailureWatch&) = delete;
  /// Says that this rank leaves, unless the group has failed.
  ~FailureWatch();

  /// Tells everybody of a failure. Returns the one that was first. `is_sure`: not just a connection that has ended, which
  /// the other side may have done because of another failure.
  Failure report(const Failure& seen, bool is_sure);
  /// For rank 0 after a failure, whose process may end now, and the store with it: waits, for a moment, until every other
  /// host has been told.
  void keep_store() const;
  std::optional<Failure> failure() const { return board_.read(); }
  /// Says that this rank has begun a collective and not told the other hosts of it yet: it may wait for a rank of its own
  /// host, and would not learn from Gloo that a connection has ended.
  void enter(bool enters) noexcept { enters_ = enters; }
  /// The failure that a rank of this host is dead, one of the next `ranks`; nothing if they are alive.
  std::optional<Failure> look_at_host(int ranks) const;

 private:
  void watch();
  void look_at_connections(int timeout_ms);
  void look_at_next_rank();
  void wake() const noexcept;
  Failure first_of_all(const Failure& seen, bool is_sure);

  const HostMap& map_;
  FailureBoard& board_;
  StoreConnection& store_;
  GlooGroup* column_;
  std::function<void()> leave_host_;
  Fd wakes_;                  // an eventfd: the thread is to end
  std::vector<int> watched_;  // by connection: its descriptor, or -1 when no more is to be learned
  int cut_off_ = -1;          // of the thread: whose connection has ended, without a store to ask why
  std::atomic<bool> enters_{false};
  std::atomic<bool> ends_{false};
  std::thread teller_;  // talks to the store about a failure
  std::thread thread_;
};

}  // namespace shoal
