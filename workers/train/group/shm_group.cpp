#include <shoal/workers/train/shm_group.h>

#include <fmt/format.h>
#include <shoal/internal/workers/train/group/group_layout.h>
#include <shoal/internal/workers/train/group/mailbox.h>
#include <shoal/internal/workers/train/group/peer_buffers.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/train/communicator.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <stdexcept>

namespace shoal {
namespace {

/// Large enough that a round's cost vanishes, small enough that a chunk stays in the caches between the
/// rank that writes it and those that read it; smaller if many ranks would stage a lot of memory.
std::uint64_t chunk_bytes_for(int world_size) {
  constexpr std::uint64_t kAllStages = 8u << 20, kLargest = 128u << 10, kSmallest = 16u << 10;
  std::uint64_t each = kAllStages / (std::uint64_t(world_size) * GroupLayout::kStages);
  return std::clamp(std::bit_floor(each), kSmallest, kLargest);
}

int checked_world_size(int world_size) {
  if (world_size < 1 || world_size > int(GroupLayout::kLargestWorld))
    throw std::invalid_argument(
        fmt::format("a group of {} ranks: it takes 1 to {}", world_size, GroupLayout::kLargestWorld));
  return world_size;
}

}  // namespace

ShmGroup::ShmGroup(int world_size, std::uint32_t first_round) : parts_(std::make_shared<Parts>()) {
  const auto count = std::uint32_t(checked_world_size(world_size));
  GroupLayout head{};
  head.magic = GroupLayout::kMagic;
  head.version = GroupLayout::kVersion;
  head.world_size = count;
  head.first_round = first_round;
  head.chunk_bytes = chunk_bytes_for(world_size);
  head.ranks = sizeof(GroupLayout);
  head.staging = (head.ranks + count * sizeof(RankLayout) + 4095) / 4096 * 4096;
  head.flights = head.staging + std::uint64_t(count) * GroupLayout::kStages * head.chunk_bytes;
  parts_->block = allocate_shared(head.flights + count * sizeof(FlightLog), BlockType::kGroup);
  auto* layout = new (parts_->block.data()) GroupLayout(head);
  // The head of each log: records count when `calls` has come to them, and unused pages stay unused.
  for (std::uint32_t i = 0; i < count; ++i)
    std::memset(static_cast<void*>(&layout->flight(int(i))), 0, offsetof(FlightLog, records));
  for (std::uint32_t i = 0; i < count; ++i) {
    auto* rank = new (&layout->rank(int(i))) RankLayout{};
    rank->round.store(first_round, std::memory_order_relaxed);  // relaxed: nobody else has the group yet
    rank->culprit.store(RankLayout::kNoCulprit, std::memory_order_relaxed);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    parts_->inboxes.push_back(Ring::create(PeerBuffers::inbox_capacity(world_size), PeerBuffers::schema(), 0,
                                           fmt::format("group's rank {}", i)));
    parts_->mail.push_back(Ring::create(Mailbox::kCapacity, Mailbox::schema(), 0, fmt::format("mail of rank {}", i)));
  }
}

GroupLayout& ShmGroup::layout() const { return *reinterpret_cast<GroupLayout*>(parts_->block.data()); }

int ShmGroup::world_size() const { return int(layout().world_size); }

ShmGroup ShmGroup::open(std::shared_ptr<Parts> parts) {
  ShmGroup group(std::move(parts));
  auto size = group.parts_->block.size();
  if (size < sizeof(GroupLayout)) throw DecodeError(fmt::format("a block of {} bytes is no group of ranks", size));
  const GroupLayout& layout = group.layout();
  if (layout.magic != GroupLayout::kMagic || layout.version != GroupLayout::kVersion ||
      layout.world_size != group.parts_->inboxes.size() ||
      layout.staging + std::uint64_t(layout.world_size) * GroupLayout::kStages * layout.chunk_bytes > layout.flights ||
      layout.flights + layout.world_size * sizeof(FlightLog) > size)
    throw DecodeError("the block that was received is no group of ranks of this version");
  return group;
}

void Codec<ShmGroup>::encode(Encoder& encoder, const ShmGroup& group) {
  encoder.write(encoder.add(group.parts_->block));
  encoder.write(std::uint32_t(group.parts_->inboxes.size()));
  for (const auto* rings : {&group.parts_->inboxes, &group.parts_->mail})
    for (const Ring& ring : *rings) encoder.write(encoder.add(ring.hold()));
}

ShmGroup Codec<ShmGroup>::decode(Decoder& decoder) {
  auto parts = std::make_shared<ShmGroup::Parts>();
  parts->block = decoder.handle(decoder.read<std::uint32_t>()).share();
  auto count = decoder.read<std::uint32_t>();
  if (count < 1 || count > GroupLayout::kLargestWorld)
    throw DecodeError(fmt::format("a group of {} ranks: it takes 1 to {}", count, GroupLayout::kLargestWorld));
  const auto next = [&] { return decoder.handle(decoder.read<std::uint32_t>()).share(); };
  for (std::uint32_t i = 0; i < count; ++i) parts->inboxes.push_back(Ring::open(next(), PeerBuffers::schema()));
  for (std::uint32_t i = 0; i < count; ++i) parts->mail.push_back(Ring::open(next(), Mailbox::schema()));
  return ShmGroup::open(std::move(parts));
}

}  // namespace shoal
