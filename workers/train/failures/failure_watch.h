// Notices that a rank of any host is gone, and ends the waits of this one.
#pragma once

#include <shoal/internal/workers/train/failures/failure_board.h>
#include <shoal/internal/workers/train/failures/failure_notes.h>
#include <shoal/internal/workers/train/hosts/column.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/internal/workers/train/hosts/meeting.h>
#include <shoal/internal/workers/train/hosts/store_questions.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace shoal {

/// One rank's watcher, with a thread of its own. It sees
///
/// - the connections of this rank's column: one that ends, while the rank on its other side has not said that it leaves, is
///   a death, or a link that is lost. Where nobody can say why it ended, it at least ends the waits for that rank;
/// - the connection to a store that the launcher keeps: it has no other reason to end than the store's death;
/// - one process of this host, the next rank's (all see one each);
/// - the host's failure board, which another rank of the host has written to.
///
/// For any of these, and when the rank itself reports a failure, it makes sure that the failure is on the board and, for the
/// other hosts, in rank 0's store (the first text that is there counts, so all ranks say the same), and only then ends the
/// connections of the column. That wakes this rank, and the ranks at the other ends, which do the same. Its thread calls
/// `tell` before it ends them, and then `wake`, which has to end the rank's wait for the others of its host. So every rank in a call is woken by its own watch,
/// whatever the others do.
///
/// Owned by the group's rank. report() and failure() may be called by any thread.
class FailureWatch {
 public:
  struct Steps {
    std::function<void(const Failure&)> tell, wake;
  };
  /// `column`: null if this rank is in none. All outlive this.
  FailureWatch(const HostMap& map, FailureBoard& board, StoreConnection& store, Column* column, Steps steps);
  FailureWatch(const FailureWatch&) = delete;
  /// Says that this rank leaves, or, if the group has failed, waits until the other hosts can know why: up to 10 s for a
  /// rank that is about to tell, and rank 0 also as failure_notes.h says. Otherwise they would take the end of this rank's
  /// connections for its death.
  ~FailureWatch();

  /// Tells everybody of a failure. Returns the one that was first. `is_sure`: not just a connection that has ended, which
  /// the other side may have done because of another failure.
  Failure report(const Failure& seen, bool is_sure);
  /// Reports that a rank died, unless it has said that it leaves.
  void report_death(int rank, const std::string& text);
  /// See failure_notes.h. Once.
  void keep_store(const Failure& failure) {
    if (!kept_.exchange(true)) shoal::keep_store(store_, map_, failure);
  }
  /// Whether this rank of the column is known to have left, after its connection has ended.
  bool has_left(int rank) const;
  std::optional<Failure> failure() const { return board_.read(); }
  /// Says that this rank has begun a collective and not told the other hosts of it yet: it may wait for a rank of its own
  /// host, and would not learn from Gloo that a connection has ended.
  void enter(bool enters) noexcept { enters_ = enters; }

 private:
  /// What is known of a connection: it lives; it has ended, and Gloo may still read what came before; that is over.
  enum class Stage { lives, ended, over };
  struct Watched {
    std::size_t socket;      // of the column's
    std::vector<int> hosts;  // that it may lead to: several where they have one address
    Stage stage = Stage::lives;
  };

  void watch();
  void settle();
  void sleep();
  void look_at_connections();
  void tell_of_end(Watched& connection);
  void look_at_store();
  void look_at_next_rank();
  void wake_thread() const noexcept;
  Failure store_failure() const;
  Failure first_of_all(const Failure& seen, bool is_sure);

  const HostMap& map_;
  FailureBoard& board_;
  StoreConnection& store_;
  StoreQuestions questions_;
  Column* column_;
  Steps steps_;
  Fd wakes_;                             // an eventfd: the thread is to end
  std::vector<Watched> watched_;         // of the thread
  int cut_off_ = -1;                     // of the thread: whose connection has ended, without a store to ask why
  std::vector<std::atomic<bool>> left_;  // by host
  std::atomic<bool> enters_{false};
  std::atomic<bool> ends_{false};
  std::atomic<bool> kept_{false};  // the store, for those that ask it
  std::thread thread_;
};

}  // namespace shoal
