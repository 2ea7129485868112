#include <shoal/internal/workers/train/hosts/host_ranks.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/listener.h>
#include <shoal/ipc/session.h>
#include <shoal/runtime/current_process.h>
#include <shoal/workers/train/shm_group.h>
#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace shoal {

std::string variable_text(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

namespace {

/// Hosts may have one folder of sockets in common: machines that are simulated by network name spaces have.
std::string host_text(const Environment& self) {
  if (self.is_on_one_host()) return "";
  if (self.node_rank >= 0) return std::to_string(self.node_rank);
  struct stat space{};
  return ::stat("/proc/self/ns/net", &space) == 0 ? fmt::format("net {}", space.st_ino) : "";
}

/// One name a run, start and host: what the launcher gives to all ranks of a host alike.
std::string session_name(const Environment& self) {
  const std::string all =
      fmt::format("{}|{}|{}|{}|{}|{}|{}", launcher_name(self.launcher), self.run_id, self.master_addr, self.master_port,
                  self.restart_count, self.world_size, host_text(self));
  return fmt::format("ranks-{:016x}", schema_hash(all));
}

/// Ranks that were started by others are sessions of their own: the first one's becomes everybody's. Lasts as long as the
/// process.
void share_session(const Environment& self, Deadline deadline) {
  static std::optional<Listener> listener;
  static bool attached = false;
  const std::string name = session_name(self);
  if (self.local_rank == 0) {
    if (!listener) listener.emplace(Session::listen(name));
    return;
  }
  if (attached) return;
  if (Session::exists())
    throw Error(
        fmt::format("rank {} was started by {} and has used shoal before it joined the other ranks: call "
                    "init_process_group or join_launched_ranks first, or start the program by shoal run",
                    self.rank, launcher_name(self.launcher)));
  for (;;) {
    try {
      Session::attach(name);
      attached = true;
      return;
    } catch (const Error& error) {
      if (deadline.passed())
        throw TimeoutError(fmt::format("rank {} waited for the first rank of this host: {}", self.rank, error.what()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it has not come yet
  }
}

void check_session(const RankPlace& self) {
  if (!self.spawned && self.launched.launcher == Launcher::shoal && !Session::exists())
    throw Error(
        fmt::format("rank {} was started by shoal run but is not in its session: make shoal::init(argc, argv) the "
                    "first statement of main, and let nothing in between close its descriptors",
                    self.launched.rank));
}

/// Tells the ranks of one spawn() from those of another process's.
std::string starter_text(const RankPlace& self) {
  if (!self.spawned) return variable_text("SHOAL_ROUND");
  SessionCore& session = SessionCore::current();
  return fmt::format("of {:x}", session.record(session.self().slot()).parent.load());
}

}  // namespace

RankPlace rank_place() {
  const CurrentProcess& process = current_process();
  if (process.rank < 0) return {environment(), false};
  RankPlace place;
  place.spawned = true;
  place.launched.rank = place.launched.local_rank = process.rank;
  place.launched.world_size = place.launched.local_world_size = process.nprocs;
  return place;
}

int next_group_number(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, int> made;
  std::lock_guard lock(mutex);
  return made[name]++;
}

Communicator join_host_ranks(const RankPlace& place, const std::string& name, int number, Deadline deadline) {
  const Environment& self = place.launched;
  check_session(place);
  if (self.local_world_size == 1) return ShmGroup(1).join(0);
  if (!place.spawned && self.launcher != Launcher::shoal) share_session(self, deadline);
  Session& session = Session::current();
  const std::string key = fmt::format("ranks/{}/{}/{}", name, starter_text(place), number);
  std::optional<ShmGroup> group;
  if (self.local_rank == 0) {
    group.emplace(self.local_world_size);
    session.publish(key, *group);
  } else {
    try {
      group = session.lookup<ShmGroup>(key, deadline.left(std::chrono::hours(24)));
    } catch (const NotPublished&) {
      throw TimeoutError(fmt::format("rank {} waited for {} to make the group '{}': it has not come, or has ended",
                                     self.rank, self.is_on_one_host() ? "rank 0" : "the first rank of this host",
                                     name));
    }
  }
  Communicator ranks = group->join(self.local_rank);
  ranks.set_timeout(deadline.left(std::chrono::hours(24)));
  ranks.barrier();
  ranks.set_timeout(std::chrono::minutes(30));
  if (self.local_rank == 0) session.unpublish(key);
  return ranks;
}

}  // namespace shoal
