#include <shoal/workers/train/split.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/session.h>
#include <shoal/workers/train/shm_group.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <stdexcept>
#include <string>

namespace shoal {
namespace {

using Members = std::bitset<GroupLayout::kLargestWorld>;

/// What a rank says of the group that it wants.
struct Wish {
  Members members;
  std::int32_t pid = 0;      // of the member that made the group, the first one: what it published it under
  std::uint32_t number = 0;  // likewise
  std::uint32_t has_failed = 0;
};

std::string key_of(const Wish& wish) { return fmt::format("split/{}/{}", wish.pid, wish.number); }

std::vector<int> list_of(const Members& members) {
  std::vector<int> list;
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    if (members[rank]) list.push_back(int(rank));
  return list;
}

Members checked_members(const std::vector<int>& list, int world) {
  if (list.empty()) throw std::invalid_argument("split: a group of no ranks");
  Members members;
  for (int rank : list) {
    if (rank < 0 || rank >= world)
      throw std::invalid_argument(fmt::format("split: rank {} of a group of {}", rank, world));
    if (members[std::size_t(rank)]) throw std::invalid_argument(fmt::format("split: rank {} twice", rank));
    members.set(std::size_t(rank));
  }
  return members;
}

/// What this rank has published, until all have looked it up.
struct Publication {
  std::string key;
  ~Publication() {
    if (!key.empty()) Session::current().unpublish(key);
  }
};

void check_agreement(const std::vector<Wish>& wishes) {
  for (std::size_t rank = 0; rank < wishes.size(); ++rank)
    for (int member : list_of(wishes[rank].members))
      if (const Members& theirs = wishes[std::size_t(member)].members; theirs != wishes[rank].members)
        throw std::invalid_argument(
            fmt::format("split: rank {} wants a group of the ranks {}, and rank {}, which is one of them, of {}", rank,
                        fmt::join(list_of(wishes[rank].members), ", "), member, fmt::join(list_of(theirs), ", ")));
  for (std::size_t rank = 0; rank < wishes.size(); ++rank)
    if (wishes[rank].has_failed != 0)
      throw Error(fmt::format("split: rank {} could not make the group for its members", rank));
}

}  // namespace

std::optional<Communicator> split(Communicator& ranks, std::vector<int> members) {
  static std::atomic<std::uint32_t> made{0};
  const std::size_t world = std::size_t(ranks.world_size());
  Wish own{.members = checked_members(members, ranks.world_size())};
  std::ranges::sort(members);

  // The first member makes the group before it says anything, so that saying where it is is all there is to do.
  Publication publication;
  std::exception_ptr failure;
  if (members[0] == ranks.rank()) {
    own.pid = ::getpid();
    own.number = made.fetch_add(1, std::memory_order_relaxed);  // relaxed: only has to be another each time
    try {
      Session::current().publish(key_of(own), ShmGroup(int(members.size())));
      publication.key = key_of(own);
    } catch (const std::exception&) {
      failure = std::current_exception();
      own.has_failed = 1;
    }
  }
  std::vector<Wish> wishes(world);
  std::vector<std::byte*> outputs;
  outputs.reserve(world);
  for (Wish& wish : wishes) outputs.push_back(reinterpret_cast<std::byte*>(&wish));
  ranks.all_gather({reinterpret_cast<std::byte*>(&own), sizeof own, nullptr}, outputs);
  if (failure) std::rethrow_exception(failure);
  check_agreement(wishes);

  std::optional<Communicator> part;
  if (auto place = std::ranges::find(members, ranks.rank()); place != members.end())
    part =
        Session::current().lookup<ShmGroup>(key_of(wishes[std::size_t(members[0])])).join(int(place - members.begin()));
  ranks.barrier();
  return part;
}

}  // namespace shoal
