#include <shoal/internal/workers/train/failures/failure_notes.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/deadline.h>
#include <shoal/internal/ipc/process/session.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

namespace shoal {
namespace {

constexpr const char* kFailure = "failure";
/// How long rank 0 keeps its store after a failure for hosts that have not asked yet.
constexpr std::chrono::milliseconds kAsking{3000};

std::string told_key(int host) { return fmt::format("told/{}", host); }

/// "1 3 rank 3 ... died": kind, rank, text.
std::string encoded_failure(const Failure& failure) {
  return fmt::format("{} {} {}", int(failure.kind), failure.rank, failure.text);
}

Failure decoded_failure(const std::string& text) {
  Failure failure;
  int kind = 0, begin = 0;
  if (std::sscanf(text.c_str(), "%d %d %n", &kind, &failure.rank, &begin) == 2)
    failure.text = text.substr(std::size_t(begin));
  failure.kind = Failure::Kind(kind);
  return failure;
}

}  // namespace

std::string left_key(int rank) { return fmt::format("left/{}", rank); }

std::optional<Failure> first_told(StoreConnection& store) {
  if (!store.has(kFailure)) return std::nullopt;
  return decoded_failure(store.wait(kFailure, Deadline::after(std::chrono::seconds(1))));  // it is there
}

Failure tell(StoreConnection& store, const HostMap& map, const Failure& seen) {
  const Failure first = decoded_failure(store.set_first(kFailure, encoded_failure(seen)));
  store.set(told_key(map.my_host()), "told");
  return first;
}

void keep_store(StoreConnection& store, const HostMap& map, const Failure& failure) {
  if (store.is_served()) return;
  const Deadline deadline = Deadline::after(kAsking);
  // A host that cannot be reached, or whose only rank is dead, will not ask.
  int gone = -1;
  if (failure.rank >= 0 && failure.kind != Failure::timed_out) {
    const int host = map.places[std::size_t(failure.rank)].host;
    if (failure.kind == Failure::unreachable || map.ranks_on(host) == 1) gone = host;
  }
  // Nor will one whose ranks have all left.
  const auto is_empty = [&](int host) {
    return std::ranges::all_of(map.hosts[std::size_t(host)].ranks, [&](const HostMap::Rank& each) {
      return each.rank == failure.rank || store.has(left_key(each.rank));
    });
  };
  try {
    for (int host = 0; host < int(map.hosts.size()); ++host)
      while (host != map.my_host() && host != gone && !deadline.passed() && !store.sockets().has_ended() &&
             !store.has(told_key(host)) && !is_empty(host))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
  } catch (const std::exception&) {
    // A store that the launcher keeps may be gone, too.
  }
}

std::optional<Failure> dead_on_host(const HostMap& map, const FailureBoard& board, int ranks) {
  const int count = map.ranks_on(map.my_host());
  for (int step = 1; step < count && step <= ranks; ++step) {
    const int local = (map.my_local() + step) % count;
    const int rank = map.rank_at(map.my_host(), local);
    const ProcessTag tag = ProcessTag::from_word(board.tag_of(local));
    if (board.has_left(local) || !tag || Session::current().is_alive(tag)) continue;
    return Failure{Failure::died, map.describe(rank) + " died", rank};
  }
  return std::nullopt;
}

}  // namespace shoal
