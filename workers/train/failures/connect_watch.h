// Looks after the ranks of several hosts while they connect, before each has its FailureWatch.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/train/failures/failure_board.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/internal/workers/train/hosts/meeting.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace shoal {

/// Gloo connects a rank with the others in one call, in which it waits in the store until each has written where it is to
/// be reached. A rank that dies before it has done that would be waited for until the time-out, and Gloo could not name
/// it. So Gloo gets a store that asks again and again in place of waiting, and looks after the ranks meanwhile, and the
/// rank looks after them itself while a thread opens Gloo's connections:
///
/// - the host's failure board, and what other hosts have told of in rank 0's store;
/// - the processes of this host;
/// - in rank 0's process, which keeps the store: the connections to it of each host's first rank. One that was there and
///   is gone is a death, unless the rank says that it has left;
/// - the connection to the store: with it rank 0 is gone.
///
/// Owned by one rank, which is not in a collective of its host's; its stores are used by any thread.
class ConnectWatch {
 public:
  /// `board`: all ranks of the host have entered it. `elsewhere`: what another group of the same ranks knows. All outlive
  /// this.
  ConnectWatch(const HostMap& map, FailureBoard& board, StoreConnection& store,
               std::function<std::optional<Failure>()> elsewhere);
  ConnectWatch(const ConnectWatch&) = delete;
  ~ConnectWatch();

  /// The store with this in front of all keys. A wait in it ends with an exception once a rank is known to be dead. It
  /// may live longer than this, and looks no more then; after fail() each call in it throws.
  c10d::Store& part(const std::string& prefix);
  /// For GlooGroup: throws once a rank is known to be dead.
  std::chrono::milliseconds look_again();
  /// Tells everybody why this rank does not connect: what is known of a death, else `seen`. Returns what was told first.
  Failure fail(const Failure& seen);

 private:
  class Store;
  std::optional<Failure> look();
  std::optional<Failure> look_at_all();
  std::optional<Failure> look_at_first_ranks();

  const HostMap& map_;
  FailureBoard& board_;
  StoreConnection& store_;
  std::function<std::optional<Failure>()> elsewhere_;
  std::vector<int> others_;  // the first ranks of the other hosts
  std::mutex looking_;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace shoal
