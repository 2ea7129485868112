// Which ranks are on which host.
#pragma once

#include <string>
#include <vector>

namespace shoal {

/// All ranks of a group, by host: the same on every rank. A plain value.
///
/// Hosts are ordered by their lowest rank, the ranks of a host by their local rank. Column c is the local rank c of every
/// host; there are as many columns as the host with the fewest ranks has. A rank with a higher local rank is in none: what
/// it has crosses in the column that is its local rank modulo the number of columns.
struct HostMap {
  struct Rank {
    int rank = 0;  ///< in the group
    int pid = 0;
    std::string backend;  ///< that it asks for, as resolved
  };
  struct Host {
    std::string name;     ///< host name, or its address where several hosts have one name
    std::string address;  ///< as the others reach it; empty on one host
    std::vector<Rank> ranks;
  };
  struct Place {
    int host = 0, local = 0;
  };

  std::vector<Host> hosts;
  std::vector<Place> places;  ///< by rank
  int me = 0;                 ///< this process's rank
  /// Whoever keeps the store: rank 0, or in a part of a group the whole group's.
  struct Keeper {
    std::string who;
    bool is_here = false;  ///< on this host
    bool is_me = false;    ///< this process
    int rank = -1;         ///< in this group; -1: in none, or another one
  } keeper;

  int world_size() const { return int(places.size()); }
  int my_host() const { return places[std::size_t(me)].host; }
  int my_local() const { return places[std::size_t(me)].local; }
  int ranks_on(int host) const { return int(hosts[std::size_t(host)].ranks.size()); }
  int columns() const;
  int column_of(int rank) const { return places[std::size_t(rank)].local % columns(); }
  int rank_at(int host, int local) const { return hosts[std::size_t(host)].ranks[std::size_t(local)].rank; }
  /// The ranks of a host whose data cross in this column, in the order of local ranks.
  std::vector<int> carried(int host, int column) const;
  bool is_equal() const;  ///< whether all hosts have as many ranks

  /// "rank 3 (host b, process 77)".
  std::string describe(int rank) const;
  static std::string describe(const Host& host, int local);

  /// The map of a part of the group, without what no rank of it is on: `members` are its ranks 0, 1, ... If this process is
  /// none of them, `me` is -1.
  HostMap part(const std::vector<int>& members) const;

  /// What a host says of itself, and back. Names have no tabs or ends of lines.
  static std::string encode(const Host& host);
  static Host decode(const std::string& text);
  /// The map of these hosts, in any order. Throws Error if ranks are missing or there twice.
  static HostMap from(std::vector<Host> hosts, int me, int world_size);
};

}  // namespace shoal
