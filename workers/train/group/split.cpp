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
#include <utility>

namespace shoal {
namespace {

using Members = std::bitset<GroupLayout::kLargestWorld>;

/// What a rank says of the group that it wants.
struct Wish {
  enum Call : std::uint32_t { kNewGroup, kSplit };
  Call call;
  Members members{};
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

const char* name_of(Wish::Call call) { return call == Wish::kNewGroup ? "new_group" : "split"; }

Members checked_members(Wish::Call call, const std::vector<int>& list, int world) {
  const char* what = name_of(call);
  if (list.empty()) throw std::invalid_argument(fmt::format("{}: a group of no ranks", what));
  Members members{};
  for (int rank : list) {
    if (rank < 0 || rank >= world)
      throw std::invalid_argument(fmt::format("{}: rank {} of a group of {}", what, rank, world));
    if (members[std::size_t(rank)]) throw std::invalid_argument(fmt::format("{}: rank {} twice", what, rank));
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

template <class T>
std::vector<T> all_of(Communicator& ranks, T own) {
  std::vector<T> all(std::size_t(ranks.world_size()));
  std::vector<std::byte*> outputs;
  outputs.reserve(all.size());
  for (T& one : all) outputs.push_back(reinterpret_cast<std::byte*>(&one));
  ranks.all_gather({reinterpret_cast<std::byte*>(&own), sizeof own, nullptr}, outputs);
  return all;
}

void check_agreement(const std::vector<Wish>& wishes) {
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    const Wish& wish = wishes[rank];
    if (wish.call != wishes[0].call)
      throw CollectiveMismatch(
          fmt::format("rank 0 called {} where rank {} called {}", name_of(wishes[0].call), rank, name_of(wish.call)));
    if (wish.call == Wish::kNewGroup && wish.members != wishes[0].members)
      throw CollectiveMismatch(fmt::format(
          "new_group: rank 0 wants a group of the ranks {}, and rank {} of {}: all ranks have to give the same list",
          fmt::join(list_of(wishes[0].members), ", "), rank, fmt::join(list_of(wish.members), ", ")));
    for (int member : list_of(wish.members))
      if (const Members& theirs = wishes[std::size_t(member)].members; theirs != wish.members)
        throw CollectiveMismatch(
            fmt::format("split: rank {} wants a group of the ranks {}, and rank {}, which is one of them, of {}", rank,
                        fmt::join(list_of(wish.members), ", "), member, fmt::join(list_of(theirs), ", ")));
  }
  for (std::size_t rank = 0; rank < wishes.size(); ++rank)
    if (wishes[rank].has_failed != 0)
      throw Error(
          fmt::format("{}: rank {} could not make the group for its members", name_of(wishes[rank].call), rank));
}

/// Makes the group of these members, in this order: the first one makes it and publishes it, and the others look it up.
std::optional<Communicator> form(Communicator& ranks, Wish own, const std::vector<int>& members) {
  static std::atomic<std::uint32_t> made{0};
  // The first member makes the group before it says anything, so that saying where it is is all there is to do.
  Publication publication;
  std::exception_ptr failure;
  if (!members.empty() && members[0] == ranks.rank()) {
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
  const std::vector<Wish> wishes = all_of(ranks, own);
  if (failure) std::rethrow_exception(failure);
  check_agreement(wishes);

  std::optional<Communicator> part;
  if (auto place = std::ranges::find(members, ranks.rank()); place != members.end())
    part =
        Session::current().lookup<ShmGroup>(key_of(wishes[std::size_t(members[0])])).join(int(place - members.begin()));
  ranks.barrier();
  return part;
}

std::optional<Communicator> form_of_list(Communicator& ranks, Wish::Call call, std::vector<int> members) {
  Wish own{.call = call, .members = checked_members(call, members, ranks.world_size())};
  std::ranges::sort(members);
  return form(ranks, own, members);
}

}  // namespace

std::optional<Communicator> new_group(Communicator& ranks, std::vector<int> members) {
  return form_of_list(ranks, Wish::kNewGroup, std::move(members));
}

std::optional<Communicator> split(Communicator& ranks, std::vector<int> members) {
  return form_of_list(ranks, Wish::kSplit, std::move(members));
}

std::optional<Communicator> split(Communicator& ranks, int color, int key) {
  struct Choice {
    std::int32_t color, key;
  };
  if (color < 0 && color != kNoColor)
    throw std::invalid_argument(fmt::format("split: color {}: give 0 or more, or kNoColor", color));
  const std::vector<Choice> choices = all_of(ranks, Choice{color, key});
  Wish own{.call = Wish::kSplit};
  std::vector<int> members;
  for (std::size_t rank = 0; color != kNoColor && rank < choices.size(); ++rank) {
    if (choices[rank].color != color) continue;
    own.members.set(rank);
    members.push_back(int(rank));
  }
  std::ranges::stable_sort(members, {}, [&](int rank) { return choices[std::size_t(rank)].key; });
  return form(ranks, own, members);
}

}  // namespace shoal
