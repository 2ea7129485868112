#include <shoal/internal/workers/train/hosts/host_map.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace shoal {

int HostMap::columns() const {
  std::size_t fewest = hosts[0].ranks.size();
  for (const Host& host : hosts) fewest = std::min(fewest, host.ranks.size());
  return int(fewest);
}

std::vector<int> HostMap::carried(int host, int column) const {
  std::vector<int> result;
  for (int local = column; local < ranks_on(host); local += columns()) result.push_back(rank_at(host, local));
  return result;
}

bool HostMap::is_equal() const {
  return std::ranges::all_of(hosts, [&](const Host& host) { return host.ranks.size() == hosts[0].ranks.size(); });
}

std::string HostMap::describe(int rank) const {
  const Place place = places[std::size_t(rank)];
  return describe(hosts[std::size_t(place.host)], place.local);
}

std::string HostMap::describe(const Host& host, int local) {
  const Rank& rank = host.ranks[std::size_t(local)];
  return fmt::format("rank {} (host {}, process {})", rank.rank, host.name, rank.pid);
}

std::string HostMap::encode(const Host& host) {
  std::string text = fmt::format("{}\t{}\n", host.name, host.address);
  for (const Rank& rank : host.ranks) text += fmt::format("{}\t{}\t{}\n", rank.rank, rank.pid, rank.backend);
  return text;
}

HostMap::Host HostMap::decode(const std::string& text) {
  std::istringstream lines(text);
  Host host;
  std::string line;
  std::getline(lines, line);
  const auto tab = line.find('\t');
  host.name = line.substr(0, tab);
  if (tab != std::string::npos) host.address = line.substr(tab + 1);
  while (std::getline(lines, line)) {
    Rank rank;
    std::istringstream fields(line);
    fields >> rank.rank >> rank.pid >> rank.backend;
    if (!fields) throw DecodeError(fmt::format("a host's list of ranks has the line '{}'", line));
    host.ranks.push_back(std::move(rank));
  }
  return host;
}

HostMap HostMap::from(std::vector<Host> hosts, int me, int world_size) {
  HostMap map;
  map.me = me;
  const auto lowest = [](const Host& host) { return std::ranges::min(host.ranks, {}, &Rank::rank).rank; };
  std::ranges::sort(hosts, {}, lowest);
  std::multiset<std::string> names;
  for (const Host& host : hosts) names.insert(host.name);
  for (Host& host : hosts)
    if (names.count(host.name) > 1 && !host.address.empty()) host.name = host.address;
  map.hosts = std::move(hosts);
  map.places.assign(std::size_t(world_size), Place{-1, -1});
  for (std::size_t host = 0; host < map.hosts.size(); ++host)
    for (std::size_t local = 0; local < map.hosts[host].ranks.size(); ++local) {
      const int rank = map.hosts[host].ranks[local].rank;
      if (rank < 0 || rank >= world_size)
        throw Error(fmt::format("host {} has rank {} in a group of {}", map.hosts[host].name, rank, world_size));
      Place& place = map.places[std::size_t(rank)];
      if (place.host >= 0)
        throw Error(
            fmt::format("rank {} is there twice, on the hosts {} and {}: two runs use one master address and port",
                        rank, map.hosts[std::size_t(place.host)].name, map.hosts[host].name));
      place = {int(host), int(local)};
    }
  for (int rank = 0; rank < world_size; ++rank)
    if (map.places[std::size_t(rank)].host < 0) throw Error(fmt::format("no host has rank {}", rank));
  if (me >= 0) map.keeper = {map.describe(0), map.places[0].host == map.my_host(), me == 0, 0};
  return map;
}

HostMap HostMap::part(const std::vector<int>& members) const {
  std::vector<Host> some;
  int index = -1;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    Host here{hosts[host].name, hosts[host].address, {}};
    for (std::size_t number = 0; number < members.size(); ++number) {
      const Place place = places[std::size_t(members[number])];
      if (place.host != int(host)) continue;
      const Rank& old = hosts[host].ranks[std::size_t(place.local)];
      here.ranks.push_back({int(number), old.pid, old.backend});
      if (members[number] == me) index = int(number);
    }
    if (!here.ranks.empty()) some.push_back(std::move(here));
  }
  HostMap map = from(std::move(some), index, int(members.size()));
  map.keeper = keeper;
  const auto place = std::ranges::find(members, keeper.rank);
  map.keeper.rank = keeper.rank < 0 || place == members.end() ? -1 : int(place - members.begin());
  return map;
}

}  // namespace shoal
