// Where the ranks of several hosts meet: c10d's TCPStore at the master's address.
#pragma once

#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/workers/train/gloo/opened_sockets.h>
#include <shoal/internal/workers/train/hosts/host_map.h>
#include <shoal/runtime/environment.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace shoal {

/// Says where the store is, and which keys are this group's.
struct MeetingPlace {
  std::string host;     ///< MASTER_ADDR
  int port = 0;         ///< MASTER_PORT; 0 for open_store(): any that is free
  std::string run;      ///< which run this is: another run's store is found out by it
  std::string group;    ///< what the group's keys begin with
  bool served = false;  ///< the launcher keeps the store, so no rank does
  int rank = 0;         ///< of this process, for messages
};

/// From what the launcher says. Throws Error, with what to set, if it does not say where the master is.
MeetingPlace meeting_place(const Environment& self, const std::string& group);

/// Opens the store in this process, which is rank 0's, unless it has done so before or the launcher keeps one. It lasts as
/// long as the process. Returns the port. Throws Error if the port is in use.
int open_store(const MeetingPlace& place, Deadline deadline);

/// The address by which others reach this host: this side of a connection to the master. Waits until the master can be
/// reached. Throws TimeoutError, which names it and says what was wrong last.
std::string address_towards(const MeetingPlace& place, Deadline deadline);

/// One rank's connection to the store, which calls of the group and nobody else use. Throws like the functions above;
/// Error if the store is another run's. Threads: any.
class StoreConnection {
 public:
  StoreConnection(const MeetingPlace& place, Deadline deadline);
  ~StoreConnection();

  /// Says that these ranks are there, and waits for all others. Returns every host. To be called by one rank of each
  /// host. Throws TimeoutError, which names the ranks that have not come: the first host whose time is over tells all, and
  /// rank 0's waits for a moment until they have heard it, since its store may end with it; PeerDied if rank 0, or the first
  /// rank of another host, has come and died; Error if its store is gone before.
  std::vector<HostMap::Host> meet(HostMap::Host own, int world_size, Deadline deadline);

  /// Writes the text under the key unless there is one; returns what is there then. Throws what c10d throws.
  std::string set_first(const std::string& key, const std::string& text);
  void set(const std::string& key, const std::string& text);
  bool has(const std::string& key);
  /// What is under the key as soon as it is there. Throws TimeoutError.
  std::string wait(const std::string& key, Deadline deadline);

  /// Writes which side of the connection this rank has, for seen_to_end().
  void write_side(int rank);
  /// In the process that keeps the store: which of these ranks had a connection to it at an earlier call, or when all had
  /// met, and have none now. Each has written its side. A rank whose address is translated on the way is never seen.
  std::vector<int> seen_to_end(const std::vector<int>& ranks);

  /// The store with this in front of all keys. Lives as long as this.
  c10d::Store& part(const std::string& prefix);
  const OpenedSockets& sockets() const { return sockets_; }
  int port() const { return port_; }
  bool is_served() const { return served_; }                    ///< by the launcher: it outlives the ranks
  const std::string& where() const noexcept { return where_; }  ///< address and port

 private:
  struct GivenUp;
  std::string wait_or_give_up(const std::string& key, Deadline deadline, const std::function<void()>& look = {});
  void look_at_those_there(const std::vector<HostMap::Host>& hosts, int missing);
  [[noreturn]] void end_for_all(const GivenUp& own, bool serves);
  void end_meeting(const std::vector<HostMap::Host>& hosts, bool serves, Deadline deadline);
  void hear(bool serves, int silent);
  void find_outward_addresses(std::vector<HostMap::Host>& hosts, int own_first_rank, Deadline deadline);

  struct Stores;
  OpenedSockets sockets_;
  int port_;
  bool served_;
  std::string where_;
  Deadline::Clock::time_point next_look_{};  // of look_at_those_there()
  std::map<int, SocketAddress> seen_sides_;  // by rank: at the store that this process keeps
  std::unique_ptr<Stores> stores_;
};

}  // namespace shoal
