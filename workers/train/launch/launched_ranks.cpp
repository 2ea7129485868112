#include <shoal/workers/train/launched_ranks.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/backend/collective_process_group.h>
#include <shoal/internal/workers/train/gloo/gloo_backend.h>
#include <shoal/internal/workers/train/hosts/host_ranks.h>
#include <shoal/internal/workers/train/launch/backend_choice.h>
#include <shoal/internal/workers/train/nccl/nccl_backend.h>
#include <shoal/internal/workers/train/two_level/meet_hosts.h>
#include <shoal/internal/workers/train/two_level/two_level.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/fd.h>
#include <shoal/ipc/log.h>
#include <shoal/workers/train/object_collectives.h>
#include <shoal/workers/train/process_group.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

namespace shoal {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A group with one backend, for CPU tensors.
class OneBackendGroup final : public c10d::ProcessGroup {
 public:
  OneBackendGroup(const c10::intrusive_ptr<c10d::Backend>& backend, BackendType type)
      : ProcessGroup(backend->getRank(), backend->getSize()), name_(backend->getBackendName()) {
    setBackend(c10::kCPU, type, backend);
    setDefaultBackend(type);
  }
  const std::string getBackendName() const override { return name_; }

 private:
  const std::string name_;
};

void say_choice(const Environment& self, const LaunchedRanksOptions& options, const char* made,
                const BackendChoice& asked, const std::string& why) {
  if (self.rank == 0)
    log_info("process group '{}' of {} ranks: {}{}, because '{}' was asked for and {}", options.name, self.world_size,
             made, asked.nccl ? ", NCCL for CUDA tensors" : "", options.backend, why);
}

/// Gloo alone, on one host: through the loopback, by a port that is free.
Group gloo_on_one_host(Communicator& ranks, const Environment& self, const std::string& group, Deadline deadline) {
  MeetingPlace place{.host = "127.0.0.1",
                     .port = 0,
                     .run = fmt::format("one host/{}", ::getppid()),  // a process has one store, for all its groups
                     .group = group + "/",
                     .served = false,
                     .rank = self.rank};
  std::string error;
  if (self.rank == 0) {
    try {
      place.port = open_store(place, deadline);
    } catch (const Error& failure) {
      error = failure.what();
    }
  }
  std::tuple<int, std::string> port(place.port, error);
  broadcast_object(ranks, port, 0);
  std::tie(place.port, error) = port;
  if (!error.empty()) throw Error(error);
  StoreConnection store(place, deadline);
  auto backend = make_gloo_backend(store.part("gloo"), self.rank, self.world_size, place.host,
                                   std::chrono::ceil<std::chrono::milliseconds>(deadline.left(std::chrono::hours(24))));
  backend->setTimeout(kBackendDefaultTimeout);
  return c10::make_intrusive<OneBackendGroup>(backend, c10d::ProcessGroup::GLOO);
}

/// All of one host ask for the same, or all throw.
void check_agreement(Communicator& ranks, const std::string& made) {
  const std::vector<std::string> all = all_gather_object(ranks, made);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw std::invalid_argument(
          fmt::format("rank 0 asks for the backend '{}' and rank {} for '{}': all ranks have to ask for the same",
                      all[0], rank, all[rank]));
}

/// NCCL's ranks of one host meet in a file, so that no port is needed; whoever leaves last removes it.
c10::intrusive_ptr<c10d::Store> file_store(Communicator& ranks) {
  std::string path;
  if (ranks.rank() == 0) {
    path = fmt::format("{}/shoal-nccl-XXXXXX", std::filesystem::temp_directory_path().string());
    const Fd made = lift(Fd(::mkostemp(path.data(), O_CLOEXEC)));
    if (!made) path.clear();
  }
  broadcast_object(ranks, path, 0);
  if (path.empty())
    throw Error("rank 0 could not make a file in the folder for temporary ones, where NCCL's ranks meet");
  return c10::make_intrusive<c10d::FileStore>(path, ranks.world_size());
}

/// Adds NCCL for CUDA tensors to a group.
Group with_nccl(Group group, const c10::intrusive_ptr<c10d::Store>& store) {
  group->setBackend(c10::kCUDA, c10d::ProcessGroup::NCCL,
                    make_nccl_backend(store, group->getRank(), group->getSize(), kBackendDefaultTimeout));
  return group;
}

Group on_one_host(const RankPlace& place, const LaunchedRanksOptions& options, const BackendChoice& asked, int number,
                  Deadline deadline) {
  const Environment& self = place.launched;
  Communicator ranks = join_host_ranks(place, options.name, number, deadline);
  const bool gloo = asked.cpu == CpuBackend::gloo;
  check_agreement(ranks, text_of({gloo ? CpuBackend::gloo : CpuBackend::shm, asked.nccl}));
  say_choice(self, options, gloo ? "Gloo" : "shared memory", asked, "all ranks are on this host");
  const c10::intrusive_ptr<c10d::Store> store = asked.nccl ? file_store(ranks) : nullptr;
  auto finished = [&](Group group) { return asked.nccl ? with_nccl(std::move(group), store) : group; };
  if (!gloo) return finished(make_process_group(std::move(ranks), {.progress = options.progress}));
  return finished(gloo_on_one_host(ranks, self, fmt::format("{}/{}/{}", options.name, ::getppid(), number), deadline));
}

Group on_several_hosts(const RankPlace& place, const LaunchedRanksOptions& options, const BackendChoice& asked,
                       int number, Deadline deadline) {
  const Environment& self = place.launched;
  const std::string group = fmt::format("{}/{}", options.name, number);
  Communicator host = join_host_ranks(place, options.name, number, deadline);
  Meeting meeting = meet_other_hosts(host, self, group, text_of(asked), deadline);
  c10::intrusive_ptr<c10d::Store> store;
  if (asked.nccl) store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(&meeting.store->part("nccl"));
  auto finished = [&](Group made) { return asked.nccl ? with_nccl(std::move(made), store) : made; };
  const std::string hosts = fmt::format("they are on {} hosts", meeting.map.hosts.size());
  if (asked.cpu == CpuBackend::shm)
    throw std::invalid_argument(fmt::format(
        "backend 'shm' connects ranks of one host, and {}: use 'auto', which is shm within a host and Gloo between "
        "hosts, or 'gloo'",
        hosts));
  if (asked.cpu == CpuBackend::gloo) {
    say_choice(self, options, "Gloo between all ranks", asked, hosts);
    const std::string address = meeting.map.hosts[std::size_t(meeting.map.my_host())].address;
    auto backend =
        make_gloo_backend(meeting.store->part("gloo"), self.rank, self.world_size, address,
                          std::chrono::ceil<std::chrono::milliseconds>(deadline.left(std::chrono::hours(24))));
    backend->setTimeout(kBackendDefaultTimeout);
    return finished(c10::make_intrusive<OneBackendGroup>(backend, c10d::ProcessGroup::GLOO));
  }
  say_choice(self, options, "shared memory within a host, Gloo in columns between hosts", asked, hosts);
  auto ranks = std::make_unique<TwoLevelGroup>(
      connect_columns(std::move(meeting), std::move(host), deadline, options.link_timeout, {}));
  ranks->set_timeout(deadline.left(std::chrono::hours(24)));  // of the meeting: a rank may stop now, too
  ranks->begin();
  ranks->set_timeout(kBackendDefaultTimeout);
  return finished(c10::make_intrusive<CollectiveProcessGroup>(
      c10::make_intrusive<CollectiveBackend>(std::move(ranks), options.progress)));
}

}  // namespace

Communicator join_launched_ranks(const LaunchedRanksOptions& options) {
  const RankPlace place = rank_place();
  const Environment& self = place.launched;
  if (!self.is_on_one_host())
    throw Error(
        fmt::format("the {} ranks are on several hosts, {} of them here: shared memory connects those of one. Use "
                    "init_process_group, which also connects hosts",
                    self.world_size, self.local_world_size));
  return join_host_ranks(place, options.name, next_group_number(options.name), Deadline::after(options.timeout));
}

c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const LaunchedRanksOptions& options) {
  const BackendChoice asked = parse_backend(options.backend);
  const RankPlace place = rank_place();
  const Deadline deadline = Deadline::after(options.timeout);
  const int number = next_group_number(options.name);
  return place.launched.is_on_one_host() ? on_one_host(place, options, asked, number, deadline)
                                         : on_several_hosts(place, options, asked, number, deadline);
}

}  // namespace shoal
