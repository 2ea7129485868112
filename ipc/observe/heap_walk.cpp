#include <shoal/internal/ipc/observe/heap_walk.h>

#include <shoal/internal/ipc/heap/size_class.h>

#include <algorithm>
#include <memory>

namespace shoal {
namespace {

/// Processes that hold one block, at the most: a longer chain of hold words is none.
constexpr int kMostChunks = 16;

/// What an extent may hold, if its record makes sense.
struct Room {
  std::uint64_t first;   // extent of the first byte
  std::uint64_t stride;  // from block to block
  std::uint32_t blocks;
  std::uint32_t owner;

  static std::optional<Room> of(const SessionFile& file, std::uint64_t extent, const ExtentRecord& record) {
    const ExtentState state{copied(record.state)};
    if (state.use() == ExtentRecord::kSmall && state.size_class() < SizeClass::kSmallCount)
      return Room{extent, SizeClass::stride(state.size_class()),
                  std::min(copied(record.used), SizeClass::blocks(state.size_class())), state.owner()};
    if (state.use() == ExtentRecord::kHead && state.run() > 0 && state.run() <= file.plan().extent_count - extent)
      return Room{extent, state.run() * kExtentBytes, 1, state.owner()};
    return std::nullopt;
  }
};

/// False if the block is in no use, or its copy makes no sense.
bool make_seen(const SessionFile& file, const Room& room, std::uint32_t index, const BlockHeader& header,
               SeenBlock& seen) {
  const auto kind = BlockHeader::kind(copied(header.state));
  if (kind != BlockHeader::kLive && kind != BlockHeader::kClosing) return false;
  const std::uint64_t start = file.data(room.first) + index * room.stride;
  if (header.payload != start || header.size > room.stride) return false;
  seen = {{file.header(room.first, index)}, kind, copied(header.type), header.size, header.payload, room.owner, {}};
  return true;
}

void add_holds(const SessionFile& file, const BlockHeader& header, SeenBlock& seen) {
  auto add = [&](const std::atomic<std::uint32_t>& hold) {
    if (const std::uint32_t word = copied(hold)) seen.holds.push_back(word);
  };
  for (auto& hold : header.holds) add(hold);
  if (seen.type == BlockType::kHoldChunk) return;  // what follows is its parent's
  std::uint64_t next = copied(header.overflow);
  for (int i = 0; i < kMostChunks && next != 0 && file.is_header(next); ++i) {
    BlockHeader chunk_header{};
    HoldChunk chunk{};
    if (!file.read(next, chunk_header) || copied(chunk_header.type) != BlockType::kHoldChunk ||
        !file.read(chunk_header.payload, chunk))
      return;
    for (auto& hold : chunk.holds) add(hold);
    next = copied(chunk_header.overflow);
  }
}

}  // namespace

SeenExtents walk_heap(const SessionFile& file, const std::function<void(const SeenBlock&)>& visit) {
  constexpr std::uint64_t kAtOnce = 512;
  SeenExtents result;
  result.by_owner.resize(ProcessTag::kSlotCount);
  SessionLayout layout{};
  if (!file.read(0, layout)) return result;
  result.touched = std::min(copied(layout.extents_touched), file.plan().extent_count);
  const auto records = std::make_unique<ExtentRecord[]>(kAtOnce);
  const auto headers = std::make_unique<BlockHeader[]>(kHeadersPerExtent);
  SeenBlock seen;
  for (std::uint64_t first = 0; first < result.touched && !file.is_exhausted(); first += kAtOnce) {
    const std::uint64_t count = std::min(kAtOnce, result.touched - first);
    if (!file.read(file.plan().extents + first * sizeof(ExtentRecord), records.get(), count * sizeof(ExtentRecord)))
      break;
    for (std::uint64_t i = 0; i < count; ++i) {
      const ExtentState state{copied(records[i].state)};
      if (state.use() == ExtentRecord::kCold) continue;
      ++result.committed;
      if (state.use() == ExtentRecord::kWarm) ++result.idle;
      const auto room = Room::of(file, first + i, records[i]);
      if (!room) continue;
      const bool small = state.use() == ExtentRecord::kSmall;
      result.by_owner[room->owner] += small ? 1 : state.run();
      if (small) result.header_bytes += SizeClass::blocks(state.size_class()) * kHeaderBytes;
      if (!file.read(file.header(first + i, 0), headers.get(), room->blocks * kHeaderBytes)) continue;
      for (std::uint32_t block = 0; block < room->blocks; ++block) {
        if (!small && BlockHeader::kind(copied(headers[0].state)) == BlockHeader::kFree) result.idle += state.run();
        if (!make_seen(file, *room, block, headers[block], seen)) continue;
        if (seen.kind == BlockHeader::kLive) add_holds(file, headers[block], seen);
        visit(seen);
      }
    }
  }
  return result;
}

std::optional<SeenBlock> block_at(const SessionFile& file, std::uint64_t offset) {
  const auto& plan = file.plan();
  if (offset < plan.data || (offset - plan.data) / kExtentBytes >= plan.extent_count) return std::nullopt;
  std::uint64_t extent = (offset - plan.data) / kExtentBytes;
  ExtentRecord record{};
  if (!file.read(plan.extents + extent * sizeof record, record)) return std::nullopt;
  const ExtentState state{copied(record.state)};
  if (state.use() == ExtentRecord::kTail) {
    if (state.run() > extent) return std::nullopt;
    extent -= state.run();
    if (!file.read(plan.extents + extent * sizeof record, record)) return std::nullopt;
  }
  const auto room = Room::of(file, extent, record);
  if (!room) return std::nullopt;
  const std::uint64_t index = (offset - file.data(extent)) / room->stride;
  if (index >= room->blocks) return std::nullopt;
  auto found = block_of(file, file.header(extent, std::uint32_t(index)));
  if (!found || offset - found->payload >= found->size) return std::nullopt;
  return found;
}

std::optional<SeenBlock> block_of(const SessionFile& file, std::uint64_t header_at) {
  if (!file.is_header(header_at)) return std::nullopt;
  const std::uint64_t number = (header_at - file.plan().headers) / kHeaderBytes;
  const std::uint64_t extent = number / kHeadersPerExtent;
  ExtentRecord record{};
  BlockHeader header{};
  SeenBlock seen;
  if (extent >= file.plan().extent_count || !file.read(file.plan().extents + extent * sizeof record, record) ||
      !file.read(header_at, header))
    return std::nullopt;
  const auto room = Room::of(file, extent, record);
  if (!room || !make_seen(file, *room, std::uint32_t(number % kHeadersPerExtent), header, seen)) return std::nullopt;
  return seen;
}

}  // namespace shoal
