#include <shoal/internal/ipc/observe/flight_look.h>

#include <shoal/internal/ipc/layout/flight_record.h>
#include <shoal/internal/ipc/observe/heap_walk.h>
#include <string.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace shoal {
namespace {

template <std::size_t kWords>
std::string text_of(const std::atomic<std::uint64_t> (&words)[kWords]) {
  char text[kWords * 8];
  std::memcpy(text, static_cast<const void*>(words), sizeof text);
  return std::string(text, ::strnlen(text, sizeof text));
}

SeenCall seen(const FlightRecord& record) {
  const std::uint64_t end = copied(record.end);
  const std::atomic<std::uint64_t> type[1] = {copied(record.type)};
  return {copied(record.call),
          copied(record.start),
          end,
          copied(record.bytes),
          text_of(record.name),
          text_of(type),
          end != 0 && (end & FlightRecord::kFailed) != 0};
}

SeenRank look_at_rank(const SessionView& view, const FlightLog& log) {
  SeenRank rank;
  rank.calls = copied(log.calls);
  rank.pid = copied(log.pid);
  rank.thread = pid_t(copied(log.thread));
  rank.left = copied(log.left) != 0;
  if (const std::uint32_t number = copied(log.number); number != 0 && number <= 1u << 30) rank.number = int(number - 1);
  const auto tag = ProcessTag::from_word(copied(log.tag));
  rank.joined = bool(tag);
  if (const SeenProcess* process = view.process(tag.slot());
      tag && process && process->generation == tag.generation()) {
    rank.slot = process->slot;
    rank.alive = process->state == SeenProcess::State::kAlive;
  }
  return rank;
}

}  // namespace

const SeenCall* SeenRank::find(std::uint64_t call) const {
  const auto found = std::ranges::find(last, call, &SeenCall::call);
  return found == last.end() ? nullptr : &*found;
}

std::vector<SeenGroup> look_at_groups(const SessionFile& file, const SessionView& view, std::size_t most) {
  file.begin_look();
  std::vector<SeenBlock> blocks;
  constexpr std::size_t kMostGroups = 4096;  // more would be none of a program's, but a heap full of nonsense
  walk_heap(file, [&](const SeenBlock& block) {
    if (block.type == BlockType::kGroup && blocks.size() < kMostGroups) blocks.push_back(block);
  });
  most = std::min<std::size_t>(most, FlightLog::kRecords);
  const auto log = std::make_unique<FlightLog>();
  std::vector<SeenGroup> groups;
  for (const SeenBlock& block : blocks) {
    GroupHead head{};
    if (block.size < sizeof head || !file.read(block.payload, head) || head.magic != GroupHead::kMagic ||
        head.version != GroupHead::kVersion || head.world_size == 0 || head.world_size > GroupHead::kLargestWorld ||
        head.flights > block.size || (block.size - head.flights) / sizeof(FlightLog) < head.world_size)
      continue;
    SeenGroup group{block.block.value, block.payload, {}};
    for (std::uint32_t i = 0; i < head.world_size; ++i) {
      // Its bytes as a whole: what is being written at this moment does not say which call it is, or another one.
      if (!file.read(block.payload + head.flights + i * sizeof(FlightLog), *log)) break;
      SeenRank rank = look_at_rank(view, *log);
      const std::uint64_t first = rank.calls > most ? rank.calls - most + 1 : 1;
      for (std::uint64_t call = first; call <= rank.calls && rank.calls != ~std::uint64_t(0); ++call) {
        const FlightRecord& record = log->records[call % FlightLog::kRecords];
        if (copied(record.call) == call) rank.last.push_back(seen(record));
      }
      group.ranks.push_back(std::move(rank));
    }
    if (group.ranks.size() == head.world_size) groups.push_back(std::move(group));
  }
  return groups;
}

std::optional<Stuck> find_stuck(const SeenGroup& group) {
  std::optional<Stuck> stuck;
  for (int rank = 0; rank < int(group.ranks.size()); ++rank) {
    const SeenCall* current = group.ranks[std::size_t(rank)].current();
    if (!current || !group.ranks[std::size_t(rank)].alive) continue;
    if (!stuck || current->call > stuck->call.call ||
        (current->call == stuck->call.call && current->start < stuck->call.start))
      stuck = Stuck{*current, rank, {}};
  }
  if (!stuck) return stuck;
  for (int rank = 0; rank < int(group.ranks.size()); ++rank)
    if (group.ranks[std::size_t(rank)].calls < stuck->call.call) stuck->missing.push_back(rank);
  return stuck;
}

}  // namespace shoal
