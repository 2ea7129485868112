#include <shoal/internal/workers/train/two_level/meet_hosts.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/internal/workers/train/failures/connect_watch.h>
#include <shoal/internal/workers/train/failures/failure_notes.h>
#include <shoal/internal/workers/train/hosts/last_moment.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/train/object_collectives.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace shoal {
namespace {

/// The other ranks of a host wait for the first one, which waits for the other hosts until the deadline.
constexpr std::chrono::seconds kGrace{10};

/// Within this the ranks that have all met connect, also on machines that are busy, or within the time for a link.
constexpr std::chrono::milliseconds kConnecting{30'000};

/// How long after the deadline a store is silent that was stopped: until then those who wait say by themselves who is late.
constexpr std::chrono::seconds kSilent{1};

Deadline last_moment(Deadline deadline) { return Deadline::after(deadline.left(std::chrono::hours(24)) + kSilent); }

std::string silent_store(const std::string& where) {
  return fmt::format("rank 0's store at {} has not answered in time: rank 0's process may be stopped", where);
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

constexpr char kBetweenHosts = '\f';

std::string joined(const std::vector<HostMap::Host>& hosts) {
  std::string text;
  for (const HostMap::Host& host : hosts) text += HostMap::encode(host) + kBetweenHosts;
  return text;
}

std::vector<HostMap::Host> taken_apart(const std::string& text) {
  std::vector<HostMap::Host> hosts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(kBetweenHosts, begin)) != std::string::npos; begin = end + 1)
    hosts.push_back(HostMap::decode(text.substr(begin, end - begin)));
  return hosts;
}

void check_backends(const HostMap& map) {
  auto asked = [&](int rank) {
    const HostMap::Place place = map.places[std::size_t(rank)];
    return map.hosts[std::size_t(place.host)].ranks[std::size_t(place.local)].backend;
  };
  for (int rank = 1; rank < map.world_size(); ++rank)
    if (asked(rank) != asked(0))
      throw std::invalid_argument(
          fmt::format("{} asks for the backend '{}' and {} for '{}': all ranks have to ask for the same",
                      map.describe(0), asked(0), map.describe(rank), asked(rank)));
}

/// The local rank of this host that has died; -1: none has.
int dead_of(const Meeting& meeting) {
  for (std::size_t local = 0; local < meeting.tags.size(); ++local)
    if (!Session::current().is_alive(ProcessTag::from_word(meeting.tags[local]))) return int(local);
  return -1;
}

/// Does what the ranks of a host do together between their meeting and their failure board. If one of them has died, this one
/// will end, too, and the other hosts would take that for its death: they are told first.
template <class Together>
void together_or_told(const Meeting& meeting, Together together) {
  try {
    together();
  } catch (const PeerDied& death) {
    const HostMap& map = meeting.map;
    Failure failure{Failure::died, death.what(), -1};
    if (const int local = dead_of(meeting); local >= 0) {
      const int rank = map.rank_at(map.my_host(), local);
      failure = {Failure::died, map.describe(rank) + " died", rank};
    }
    try {
      failure = tell(*meeting.store, map, failure);
      if (map.keeper.is_me) keep_store(*meeting.store, map, failure);
    } catch (const std::exception&) {
      // The store is gone: its end is what the others learn.
    }
    throw PeerDied(fmt::format("connecting {} hosts: {}", map.hosts.size(), failure.text));
  }
}

/// Of a rank that is not its host's first one. All have met, so a store that nobody finds now has ended; c10d would look for it
/// until the deadline.
std::unique_ptr<StoreConnection> connection_after_meeting(const Meeting& meeting, Deadline deadline) {
  constexpr std::chrono::nanoseconds kLooking = std::chrono::seconds(3), kLongest = std::chrono::seconds(10);
  try {
    address_towards(meeting.place, Deadline::after(deadline.left(kLooking)));
    return std::make_unique<StoreConnection>(meeting.place, Deadline::after(deadline.left(kLongest)));
  } catch (const TimeoutError&) {
    if (deadline.passed() || meeting.place.served) throw;
    throw PeerDied(fmt::format("connecting {} hosts: {} died, or has left: its store is gone", meeting.map.hosts.size(),
                               meeting.map.keeper.who));
  }
}

}  // namespace

Meeting meet_other_hosts(Communicator& host, const Environment& self, const std::string& group,
                         const std::string& backend, Deadline deadline) {
  host.set_timeout(deadline.left(std::chrono::hours(24)) + kGrace);
  const MeetingPlace place = meeting_place(self, group);
  const LastMoment moment(place.port, last_moment(deadline));
  std::string own_error;
  if (self.rank == 0) {
    try {
      open_store(place, deadline);
    } catch (const Error& error) {
      own_error = error.what();
    }
  }
  using Fields = std::tuple<std::int32_t, std::int32_t, std::uint32_t, std::string, std::string>;
  HostMap::Host here;
  here.name = host_name();
  Meeting met;
  for (auto& [rank, pid, tag, asked, error] :
       all_gather_object(host, Fields(self.rank, ::getpid(), Session::current().self().word(), backend, own_error))) {
    if (!error.empty()) throw Error(error);
    here.ranks.push_back({rank, pid, asked});
    met.tags.push_back(tag);
  }
  met.place = place;
  SHOAL_KILL_POINT("hosts.gathered");

  enum Outcome : std::int32_t { kMet, kTimedOut, kDied, kFailed };
  std::tuple<std::int32_t, std::string, std::string> told;  // Outcome, error, hosts
  if (host.rank() == 0) {
    auto& [outcome, error, hosts] = told;
    try {
      here.address = address_towards(place, deadline);
      met.store = std::make_unique<StoreConnection>(place, deadline);
      std::vector<HostMap::Host> all = met.store->meet(here, self.world_size, deadline);
      hosts = joined(all);
      met.map = HostMap::from(std::move(all), self.rank, self.world_size);
    } catch (const TimeoutError& late) {
      outcome = kTimedOut;
      error = late.what();
    } catch (const PeerDied& death) {
      outcome = kDied;
      error = death.what();
    } catch (const std::exception& other) {
      outcome = kFailed;
      error = other.what();
    }
    if (outcome != kMet && moment.is_over()) {
      outcome = kTimedOut;
      error = silent_store(fmt::format("{}:{}", place.host, place.port));
    }
  }
  const auto tell_host = [&] { broadcast_object(host, told, 0); };
  if (met.map.world_size() != 0) {
    together_or_told(met, tell_host);
  } else {
    try {
      tell_host();
    } catch (const PeerDied&) {
      const int local = dead_of(met);
      if (local < 0) throw;
      throw PeerDied(fmt::format("meeting the other hosts: {} died", HostMap::describe(here, local)));
    }
  }
  const auto& [outcome, error, hosts] = told;
  if (outcome == kTimedOut) throw TimeoutError(error);
  if (outcome == kDied) throw PeerDied(error);
  if (outcome == kFailed) throw Error(error);
  if (met.map.world_size() == 0) met.map = HostMap::from(taken_apart(hosts), self.rank, self.world_size);
  check_backends(met.map);
  if (!met.store) met.store = connection_after_meeting(met, deadline);
  return met;
}

std::unique_ptr<StoreConnection> connection_of_part(const MeetingPlace& place, Deadline deadline) {
  const LastMoment moment(place.port, last_moment(deadline));
  try {
    return std::make_unique<StoreConnection>(place, deadline);
  } catch (const std::exception&) {
    if (moment.is_over()) throw TimeoutError(silent_store(fmt::format("{}:{}", place.host, place.port)));
    throw;
  }
}

TwoLevelGroup::Parts connect_columns(Meeting meeting, Communicator host, Deadline deadline,
                                     std::chrono::milliseconds link_timeout,
                                     std::function<std::optional<Failure>()> elsewhere) {
  host.set_timeout(deadline.left(std::chrono::hours(24)) + kGrace);
  SHOAL_KILL_POINT("hosts.met");
  meeting.store->sockets().keep_alive(link_timeout);
  const LastMoment moment(meeting.store->sockets(), last_moment(deadline));
  TwoLevelGroup::Parts parts;
  FailureBoard::Block block = FailureBoard::make(host.world_size());
  together_or_told(meeting, [&] {
    broadcast_object(host, block, 0);
    parts.board = std::make_unique<FailureBoard>(std::move(block), host.rank());
    parts.board->enter(Session::current().self().word());
    host.barrier();  // nobody looks for others' marks before they are there
  });
  parts.map = std::move(meeting.map);
  parts.store = std::move(meeting.store);
  parts.place = std::move(meeting.place);
  parts.link_timeout = link_timeout;
  ConnectWatch watch(parts.map, *parts.board, *parts.store, std::move(elsewhere));
  const std::string me = parts.map.describe(parts.map.me);
  try {
    const int column = parts.map.my_local();
    SHOAL_KILL_POINT("hosts.connect");
    if (column < parts.map.columns()) {
      std::vector<std::string> addresses;
      addresses.reserve(parts.map.hosts.size());
      for (const HostMap::Host& each : parts.map.hosts) addresses.push_back(each.address);
      const Deadline connected = Deadline::after(std::min<std::chrono::nanoseconds>(
          std::max(link_timeout, kConnecting), deadline.left(std::chrono::hours(24))));
      parts.column = std::make_unique<Column>(watch.part(fmt::format("column/{}", column)), parts.store->port(),
                                              parts.map.my_host(), addresses, connected, link_timeout,
                                              [&watch] { return watch.look_again(); });
      SHOAL_KILL_POINT("hosts.connected");
    }
    host.barrier();  // all of this host are connected, or one has said why it is not
  } catch (const std::exception& failure) {
    const Failure why = watch.fail(
        {Failure::aborted, fmt::format("{} could not connect with the other hosts from {}: {}", me,
                                       parts.map.hosts[std::size_t(parts.map.my_host())].address, failure.what())});
    host.abort();  // those of this host that wait for this one: the board says why
    if (moment.is_over()) throw TimeoutError(silent_store(parts.store->where()));
    if (why.kind == Failure::died || why.kind == Failure::unreachable)
      throw PeerDied(fmt::format("connecting {} hosts: {}", parts.map.hosts.size(), why.text));
    throw Error(why.text);
  }
  parts.host = std::make_unique<Communicator>(std::move(host));
  return parts;
}

}  // namespace shoal
