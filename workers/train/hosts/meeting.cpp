#include <shoal/internal/workers/train/hosts/meeting.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/train/hosts/host_ranks.h>
#include <shoal/internal/workers/train/hosts/time_left.h>
#include <shoal/ipc/error.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace shoal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPause{20};
constexpr const char* kGaveUp = "gave up";
constexpr const char* kMet = "met";

/// How long rank 0's host waits, when the ranks have given up, for the others to hear of it. One that is gone never does.
constexpr milliseconds kHearing{2000};

/// A connection to a store whose host is gone ends within this while the ranks meet.
constexpr milliseconds kLinkWhileMeeting{30'000};

/// How often rank 0's host looks whether those that have come are still there: it asks about each of its descriptors.
constexpr milliseconds kBetweenLooks{250};

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

std::string side_key(int rank) { return fmt::format("side/{}", rank); }

std::string encoded_side(const SocketAddress& side) { return fmt::format("{} {}", side.port, side.address); }

SocketAddress decoded_side(const std::string& text) {
  SocketAddress side;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, side.port);
  if (error == std::errc() && rest != end) side.address.assign(rest + 1, end);
  return side;
}

/// The stores that this process keeps, by port. Never destroyed: groups with static lifetime use them.
struct KeptStores {
  std::mutex mutex;
  std::map<int, c10::intrusive_ptr<c10d::TCPStore>> by_port;
};

KeptStores& kept() {
  static KeptStores& stores = *new KeptStores;
  return stores;
}

/// One attempt. Returns this side's address, or nothing and what was wrong.
std::string try_to_connect(const addrinfo& target, Deadline deadline, std::string& wrong) {
  const Fd socket = lift(Fd(::socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket) {
    wrong = std::strerror(errno);
    return "";
  }
  if (::connect(socket.get(), target.ai_addr, target.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) {
      wrong = std::strerror(errno);
      return "";
    }
    pollfd connected{socket.get(), POLLOUT, 0};
    if (::poll(&connected, 1, int(left_of(deadline).count())) <= 0) {
      wrong = "no answer";
      return "";
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      wrong = std::strerror(error);
      return "";
    }
  }
  return own_side(socket.get()).address;
}

std::vector<int> first_ranks(const std::vector<HostMap::Host>& hosts) {
  std::vector<int> ranks;
  ranks.reserve(hosts.size());
  for (const HostMap::Host& host : hosts) ranks.push_back(host.ranks[0].rank);
  return ranks;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// This host's address on the way to another one; nothing is sent. Empty if there is no way.
std::string address_on_the_way_to(const std::string& other) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(other.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> target(found, ::freeaddrinfo);
  const Fd socket = lift(Fd(::socket(target->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  if (!socket || ::connect(socket.get(), target->ai_addr, target->ai_addrlen) != 0) return "";
  return own_side(socket.get()).address;
}

}  // namespace

MeetingPlace meeting_place(const Environment& self, const std::string& group) {
  if (self.master_addr.empty() || self.master_port == 0)
    throw Error(fmt::format(
        "the {} ranks are on several hosts, and {} does not tell where they meet: set MASTER_ADDR to rank 0's "
        "host and MASTER_PORT to a port that is free there, on all ranks (mpirun -x MASTER_ADDR=... -x "
        "MASTER_PORT=..., mpiexec -genv)",
        self.world_size, launcher_name(self.launcher)));
  MeetingPlace place;
  place.host = self.master_addr;
  place.port = self.master_port;
  place.rank = self.rank;
  place.served = variable_text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.run = fmt::format("{} {} {} {} {}", launcher_name(self.launcher), self.run_id, self.restart_count,
                          variable_text("SHOAL_ROUND"), self.world_size);
  place.group = fmt::format("shoal/{}/{}/{}/", self.run_id, self.restart_count, group);
  return place;
}

int open_store(const MeetingPlace& place, Deadline deadline) {
  if (place.served) return place.port;
  KeptStores& stores = kept();
  std::lock_guard lock(stores.mutex);
  if (const auto there = stores.by_port.find(place.port); there != stores.by_port.end())
    return there->second->getPort();
  c10d::TCPStoreOptions options;
  options.port = std::uint16_t(place.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = left_of(deadline);
  try {
    // It talks to itself by loopback: what the master's name means is no matter.
    auto store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
    const std::string run = place.run;
    store->set("shoal/run", std::vector<std::uint8_t>(run.begin(), run.end()));
    stores.by_port[place.port] = store;
    OpenedSockets::serves(store->getPort());
    return store->getPort();
  } catch (const std::exception& error) {
    const std::string text = first_line(error);
    if (text.find("EADDRINUSE") != std::string::npos || text.find("in use") != std::string::npos)
      throw Error(
          fmt::format("rank 0 cannot open port {} for the other ranks, another program has it: choose another "
                      "MASTER_PORT",
                      place.port));
    throw Error(fmt::format("rank 0 cannot open port {} for the other ranks: {}", place.port, text));
  }
}

std::string address_towards(const MeetingPlace& place, Deadline deadline) {
  const auto asked = Deadline::Clock::now();
  std::string wrong = "nothing was tried";
  for (;;) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int code = ::getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> targets(found, [](addrinfo* all) {
      if (all) ::freeaddrinfo(all);
    });
    if (code != 0) wrong = ::gai_strerror(code);
    for (const addrinfo* target = found; target; target = target->ai_next)
      if (std::string own = try_to_connect(*target, deadline, wrong); !own.empty()) return own;
    if (deadline.passed()) break;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kPause, deadline.left(kPause)));
  }
  const auto seconds = std::chrono::duration<double>(Deadline::Clock::now() - asked).count();
  throw TimeoutError(fmt::format(
      "rank {} could not reach rank 0's host at {}:{} within {:.1f} s: {}. MASTER_ADDR and MASTER_PORT have to "
      "name rank 0's host and a port that is open there",
      place.rank, place.host, place.port, seconds, wrong));
}

struct StoreConnection::Stores {
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<c10::intrusive_ptr<c10d::Store>> parts;
};

/// Why a host ends the meeting for all: its time is over, or a rank has died.
struct StoreConnection::GivenUp : std::exception {
  GivenUp(bool death, std::string text, int gone = 0) : died(death), why(std::move(text)), silent(gone) {}
  explicit GivenUp(const std::string& told) : GivenUp(told.starts_with(kDied), told.substr(1)) {}
  std::string told() const { return (died ? kDied : kLate) + why; }
  const char* what() const noexcept override { return why.c_str(); }

  static constexpr char kDied = 'd', kLate = 'l';
  bool died;
  std::string why;
  int silent;  ///< hosts that have come and will not hear of it
};

StoreConnection::StoreConnection(const MeetingPlace& place, Deadline deadline)
    : port_(place.port),
      served_(place.served),
      where_(fmt::format("{}:{}", place.host, place.port)),
      stores_(std::make_unique<Stores>()) {
  c10d::TCPStoreOptions options;
  options.port = std::uint16_t(place.port);
  options.waitWorkers = false;
  options.timeout = left_of(deadline);
  std::string theirs;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(place.host, options);
    if (!place.served) theirs = store->get_to_str("shoal/run");  // waits until rank 0 has written it
    stores_->store = c10::make_intrusive<c10d::PrefixStore>(place.group, store);
  } catch (const std::exception& error) {
    throw TimeoutError(fmt::format(
        "rank {} has found no store of rank 0's at {}:{}: another program may have the port, or rank 0 has not "
        "come ({})",
        place.rank, place.host, place.port, first_line(error)));
  }
  if (!place.served && theirs != place.run)
    throw Error(fmt::format("the store at {}:{} is another run's ('{}', and this is '{}'): choose another MASTER_PORT",
                            place.host, place.port, theirs, place.run));
  sockets_.find(place.port);
  sockets_.keep_alive(std::min(left_of(deadline), kLinkWhileMeeting));
}

StoreConnection::~StoreConnection() { sockets_.forget(); }

/// On the master's own host its name may mean the loopback (/etc/hosts of many machines says so), which no other host
/// can reach. Whoever has such an address while others have a real one takes the one on the way to those.
void StoreConnection::find_outward_addresses(std::vector<HostMap::Host>& hosts, int own_first_rank, Deadline deadline) {
  const auto outward = std::ranges::find_if(hosts, [](auto& host) { return !is_loopback(host.address); });
  if (outward == hosts.end()) return;  // all are one machine
  const std::string target = outward->address;
  for (HostMap::Host& host : hosts) {
    if (!is_loopback(host.address)) continue;
    const std::string key = fmt::format("address/{}", host.ranks[0].rank);
    if (host.ranks[0].rank == own_first_rank) set(key, address_on_the_way_to(target));
    host.address = wait(key, deadline);
  }
}

std::vector<HostMap::Host> StoreConnection::meet(HostMap::Host own, int world_size, Deadline deadline) {
  c10d::Store& store = *stores_->store;
  const auto asked = Deadline::Clock::now();
  std::vector<HostMap::Host> hosts;
  std::vector<bool> there(std::size_t(world_size), false);
  int ranks = 0;
  const bool serves =
      !served_ && std::ranges::any_of(own.ranks, [](const HostMap::Rank& rank) { return rank.rank == 0; });
  try {
    write_side(own.ranks[0].rank);
    const std::int64_t number = store.add("hosts", 1);
    set(fmt::format("host/{}", number), HostMap::encode(own));
    for (std::int64_t next = 1; ranks < world_size; ++next) {
      const auto look = [&] {
        if (serves) look_at_those_there(hosts, world_size - ranks);
      };
      hosts.push_back(HostMap::decode(wait_or_give_up(fmt::format("host/{}", next), deadline, look)));
      ranks += int(hosts.back().ranks.size());
      for (const HostMap::Rank& rank : hosts.back().ranks)
        if (rank.rank >= 0 && rank.rank < world_size) there[std::size_t(rank.rank)] = true;
    }
    end_meeting(hosts, serves, deadline);
    find_outward_addresses(hosts, own.ranks[0].rank, deadline);
  } catch (const TimeoutError&) {
    std::vector<int> missing;
    for (int rank = 0; rank < world_size; ++rank)
      if (!there[std::size_t(rank)]) missing.push_back(rank);
    const double seconds = std::chrono::duration<double>(Deadline::Clock::now() - asked).count();
    const std::string own_text =
        missing.empty()
            ? fmt::format("all {} ranks have come, and rank 0 has not said so within {:.1f} s", world_size, seconds)
            : fmt::format("{} of {} ranks have not come within {:.1f} s: {}", missing.size(), world_size, seconds,
                          fmt::join(missing, ", "));
    end_for_all(GivenUp(false, own_text), serves);
  } catch (const GivenUp& why) {
    end_for_all(why, serves);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (served_)
      throw Error(fmt::format("the store at {}, which the launcher keeps, is gone while the ranks meet ({})", where_,
                              first_line(error)));
    if (ranks == world_size)
      throw PeerDied(fmt::format("meeting {} hosts: {} died, or has left: its store is gone", hosts.size(),
                                 HostMap::from(hosts, own.ranks[0].rank, world_size).describe(0)));
    throw Error(
        fmt::format("rank 0's store is gone while the ranks meet: rank 0 has ended or died ({})", first_line(error)));
  }
  return hosts;
}

/// On rank 0's host, while others are still to come: those would be waited for until the deadline, and then be named.
void StoreConnection::look_at_those_there(const std::vector<HostMap::Host>& hosts, int missing) {
  if (Deadline::Clock::now() < next_look_) return;
  next_look_ = Deadline::Clock::now() + kBetweenLooks;
  const std::vector<int> ended = seen_to_end(first_ranks(hosts));
  if (ended.empty()) return;
  const auto host =
      std::ranges::find_if(hosts, [&](const HostMap::Host& each) { return each.ranks[0].rank == ended[0]; });
  throw GivenUp(true,
                fmt::format("meeting the other hosts: {} died: its connection to rank 0's store has ended while {} "
                            "ranks were still to come",
                            HostMap::describe(*host, 0), missing),
                int(ended.size()));
}

/// Says why the meeting ends, or hears that another host has said so before, and throws that.
void StoreConnection::end_for_all(const GivenUp& own, bool serves) {
  std::string first;
  try {
    first = set_first(kGaveUp, own.told());
    hear(serves, own.silent);
  } catch (const std::exception&) {
    // The store is gone: the others have given up, too.
  }
  const GivenUp why = first.empty() ? own : GivenUp(first);
  if (why.died) throw PeerDied(why.why);
  throw TimeoutError(why.why);
}

/// Rank 0's process looks at the connections to its store while each host's first rank still waits for it: whoever dies
/// after the meeting was seen by then, and so its end is seen, too.
void StoreConnection::end_meeting(const std::vector<HostMap::Host>& hosts, bool serves, Deadline deadline) {
  if (served_) return;
  c10d::Store& store = *stores_->store;
  store.add("read", 1);
  if (!serves) {
    wait_or_give_up(kMet, deadline);
    return;
  }
  const std::vector<int> firsts = first_ranks(hosts);
  // One that still reads who has come could not name this rank if it died now.
  for (milliseconds pause{1}; store.add("read", 0) < std::int64_t(hosts.size());
       pause = std::min(2 * pause, milliseconds(50))) {
    if (has(kGaveUp)) throw GivenUp(store.get_to_str(kGaveUp));
    if (!seen_to_end(firsts).empty()) break;  // a death is told to all when they connect
    if (deadline.passed()) throw TimeoutError(kMet);
    std::this_thread::sleep_for(pause);
  }
  seen_to_end(firsts);
  set(kMet, "met");
}

void StoreConnection::write_side(int rank) {
  if (!sockets_.sockets().empty()) set(side_key(rank), encoded_side(own_side(sockets_.sockets()[0].descriptor.get())));
}

std::vector<int> StoreConnection::seen_to_end(const std::vector<int>& ranks) {
  std::set<std::pair<std::string, int>> there;
  for (const SocketAddress& side : OpenedSockets::others_at(port_)) there.emplace(side.address, side.port);
  std::vector<int> ended;
  for (const int rank : ranks) {
    if (const auto seen = seen_sides_.find(rank); seen != seen_sides_.end()) {
      if (!there.contains({seen->second.address, seen->second.port})) ended.push_back(rank);
    } else if (has(side_key(rank))) {
      SocketAddress side = decoded_side(wait(side_key(rank), Deadline::after(std::chrono::seconds(1))));
      if (there.contains({side.address, side.port})) seen_sides_.emplace(rank, std::move(side));
    }
  }
  return ended;
}

/// What is under the key as soon as it is there. Calls `look` now and then. Throws GivenUp when a host has ended the meeting.
std::string StoreConnection::wait_or_give_up(const std::string& key, Deadline deadline,
                                             const std::function<void()>& look) {
  milliseconds pause{1};
  while (!has(key)) {
    if (has(kGaveUp)) throw GivenUp(stores_->store->get_to_str(kGaveUp));
    if (deadline.passed()) throw TimeoutError(key);
    if (look) look();
    SHOAL_KILL_POINT("hosts.awaits");
    std::this_thread::sleep_for(pause);  // longer and longer: there is one store for all hosts
    pause = std::min(2 * pause, milliseconds(50));
  }
  return stores_->store->get_to_str(key);
}

/// Says that this host knows that the ranks have given up. `serves`: on rank 0's, waits until all that had come know, but
/// `silent` of them, which are dead.
void StoreConnection::hear(bool serves, int silent) {
  const std::int64_t heard = stores_->store->add("heard", 1);
  if (!serves) return;
  const Deadline deadline = Deadline::after(kHearing);
  for (std::int64_t now = heard; now < stores_->store->add("hosts", 0) - silent && !deadline.passed();
       now = stores_->store->add("heard", 0))
    std::this_thread::sleep_for(milliseconds(2));
}

std::string StoreConnection::set_first(const std::string& key, const std::string& text) {
  return stores_->store->compareSet(key, "", text);
}

void StoreConnection::set(const std::string& key, const std::string& text) { stores_->store->set(key, text); }

bool StoreConnection::has(const std::string& key) { return stores_->store->check({key}); }

std::string StoreConnection::wait(const std::string& key, Deadline deadline) {
  // Asked again and again, in place of one long call: that one nobody could end.
  while (!stores_->store->check({key})) {
    if (deadline.passed()) throw TimeoutError(fmt::format("nobody has written '{}' to rank 0's store", key));
    std::this_thread::sleep_for(milliseconds(5));
  }
  return stores_->store->get_to_str(key);
}

c10d::Store& StoreConnection::part(const std::string& prefix) {
  stores_->parts.emplace_back(c10::make_intrusive<c10d::PrefixStore>(prefix, stores_->store));
  return *stores_->parts.back();
}

}  // namespace shoal
