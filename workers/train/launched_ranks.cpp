#include <shoal/workers/train/launched_ranks.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/listener.h>
#include <shoal/ipc/session.h>
#include <shoal/workers/train/process_group.h>
#include <shoal/workers/train/shm_group.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace shoal {
namespace {

std::string text_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

/// The n-th group of a name in this process is the n-th in all others.
int next_number(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, int> made;
  std::lock_guard lock(mutex);
  return made[name]++;
}

/// One name a run, start and host: what the launcher gives to all ranks alike.
std::string session_name(const Environment& self) {
  const std::string all = fmt::format("{}|{}|{}|{}|{}|{}", launcher_name(self.launcher), self.run_id, self.master_addr,
                                      self.master_port, self.restart_count, self.world_size);
  return fmt::format("ranks-{:016x}", schema_hash(all));
}

/// Ranks that were started by others are sessions of their own: rank 0's becomes everybody's. Lasts as long as the
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
        throw TimeoutError(fmt::format("rank {} waited for rank 0 of this host: {}", self.rank, error.what()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // rank 0 has not come yet
  }
}

void check_session(const Environment& self) {
  if (self.launcher == Launcher::shoal && !Session::exists())
    throw Error(
        fmt::format("rank {} was started by shoal run but is not in its session: make shoal::init(argc, argv) the "
                    "first statement of main, and let nothing in between close its descriptors",
                    self.rank));
}

}  // namespace

Communicator join_launched_ranks(const LaunchedRanksOptions& options) {
  const Environment self = environment();
  if (!self.is_on_one_host())
    throw Error(
        fmt::format("the {} ranks are on several hosts, {} of them here: shared memory connects those of one. Use "
                    "c10d::ProcessGroupGloo with a TCPStore at MASTER_ADDR and MASTER_PORT",
                    self.world_size, self.local_world_size));
  if (self.world_size == 1) return ShmGroup(1).join(0);
  const Deadline deadline = Deadline::after(options.timeout);
  check_session(self);
  if (self.launcher != Launcher::shoal) share_session(self, deadline);
  Session& session = Session::current();
  const std::string key =
      fmt::format("ranks/{}/{}/{}", options.name, text_of("SHOAL_ROUND"), next_number(options.name));
  std::optional<ShmGroup> group;
  if (self.rank == 0) {
    group.emplace(self.world_size);
    session.publish(key, *group);
  } else {
    try {
      group = session.lookup<ShmGroup>(key, deadline.left(std::chrono::hours(24)));
    } catch (const NotPublished&) {
      throw TimeoutError(fmt::format("rank {} waited for rank 0 to make the group '{}': it has not come, or has ended",
                                     self.rank, options.name));
    }
  }
  Communicator ranks = group->join(self.rank);
  ranks.set_timeout(options.timeout);
  ranks.barrier();
  ranks.set_timeout(std::chrono::minutes(30));
  if (self.rank == 0) session.unpublish(key);
  return ranks;
}

c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const LaunchedRanksOptions& options) {
  return make_process_group(join_launched_ranks(options));
}

}  // namespace shoal
