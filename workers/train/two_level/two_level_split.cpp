// Groups of some ranks of a group that is on several hosts.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/train/backend/communicator_ranks.h>
#include <shoal/internal/workers/train/two_level/meet_hosts.h>
#include <shoal/internal/workers/train/two_level/two_level_state.h>
#include <shoal/workers/train/split.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

namespace shoal {

std::unique_ptr<RankGroup> TwoLevelGroup::split(const std::vector<int>& members) {
  State& s = *state_;
  std::vector<int> sorted = members;
  std::ranges::sort(sorted);
  if (sorted.empty()) throw std::invalid_argument("split: a group of no ranks");
  for (const int rank : sorted)
    if (rank < 0 || rank >= s.map.world_size())
      throw std::invalid_argument(fmt::format("split: rank {} of a group of {}", rank, s.map.world_size()));
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    throw std::invalid_argument(fmt::format("split: rank {} twice", *twice));
  if (!std::ranges::binary_search(sorted, s.map.me)) sorted.clear();  // other ranks' group
  return form(sorted);
}

std::unique_ptr<RankGroup> TwoLevelGroup::split(int color, int key) {
  State& s = *state_;
  if (color < 0 && color != kNoColor)
    throw std::invalid_argument(fmt::format("split: color {}: give 0 or more, or kNoColor", color));
  struct Choice {
    std::int32_t color, key;
  };
  std::vector<Choice> choices;
  s.call({Collective::split, ~0u, ~0u, -1, sizeof(Choice)}, [&] { choices = s.all_of(Choice{color, key}); });
  std::vector<int> members;
  for (std::size_t rank = 0; color != kNoColor && rank < choices.size(); ++rank)
    if (choices[rank].color == color) members.push_back(int(rank));
  std::ranges::stable_sort(members, {}, [&](int rank) { return choices[std::size_t(rank)].key; });
  return form(members);
}

/// Every rank says which list it gives, then which member of its list has given another one. So all come to the same
/// opinion, and no rank has to know all lists. The ranks of each host that are members become a group in shared memory; then
/// these connect as the whole group did, by keys of the store that are this part's. `members`: of this rank's group, in their
/// new order; empty if it is in none.
std::unique_ptr<RankGroup> TwoLevelGroup::form(const std::vector<int>& members) {
  State& s = *state_;
  std::optional<Communicator> here;
  std::chrono::nanoseconds timeout{};
  const std::uint64_t own = schema_hash(fmt::format("{}", fmt::join(members, ",")));
  std::vector<std::uint64_t> lists;
  s.call({Collective::split, ~0u, ~0u, -1, sizeof own}, [&] { lists = s.all_of(own); });
  s.call({Collective::split, ~0u, ~0u, -1, 0}, [&] {
    std::int32_t other = -1;
    for (const int rank : members)
      if (other < 0 && lists[std::size_t(rank)] != own) other = rank;
    const auto others = s.all_of(other);
    for (std::size_t rank = 0; rank < others.size(); ++rank)
      if (others[rank] >= 0)
        throw CollectiveMismatch(
            fmt::format("split: {} wants a group with {}, which gives another list of members: all members of a group "
                        "have to give the same",
                        s.map.describe(int(rank)), s.map.describe(others[rank])));
    const auto place = std::ranges::find(members, s.map.me);
    if (s.local_ranks() > 1)
      here = shoal::split(*s.host, members.empty() ? kNoColor : members[0], int(place - members.begin()));
    else if (!members.empty())
      here = ShmGroup(1).join(0);
    ++s.splits;
    timeout = s.timeout;
  });
  if (members.empty()) return nullptr;
  HostMap map = s.map.part(members);
  if (map.hosts.size() == 1) return std::make_unique<CommunicatorRanks>(std::move(*here));
  const Deadline deadline = Deadline::after(timeout);
  MeetingPlace place = s.place;
  place.group += fmt::format("part/{}/{}/", s.splits, members[0]);
  SHOAL_KILL_POINT("hosts.part");
  auto store = connection_of_part(place, deadline);
  Meeting meeting{std::move(map), std::move(store), std::move(place), {}};
  auto part = std::make_unique<TwoLevelGroup>(connect_columns(std::move(meeting), std::move(*here), deadline,
                                                              s.link_timeout, [&s] { return s.watch->failure(); }));
  part->begin();
  return part;
}

}  // namespace shoal
