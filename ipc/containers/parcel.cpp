#include <shoal/internal/ipc/containers/parcel.h>

#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/heap/block_kind.h>
#include <shoal/internal/ipc/heap/block_name.h>
#include <shoal/internal/ipc/process/session.h>

#include <algorithm>
#include <new>
#include <utility>

namespace shoal {
namespace {

/// A longer value stays in the block that it was encoded into.
constexpr std::size_t kMostInside = 256;

/// Gives up what the parcel holds. Repeatable: a hold that is not in the parcel's name is not touched. It was dropped
/// before, or never given to the parcel.
void close_parcel(Heap& heap, BlockOffset block) noexcept {
  auto& layout = *reinterpret_cast<ParcelLayout*>(heap.memory().payload(block));
  for (const HoldRef& ref : std::span(layout.holds(), layout.held())) {
    if (heap.is_hold(ref, layout.owner)) heap.drop(ref);
    SHOAL_KILL_POINT("parcel.close.hold");
  }
}

}  // namespace

Hold make_parcel(const ParcelLabel& label, Encoder& value) {
  const std::size_t size = value.bytes().size();
  const bool spilled = size > kMostInside;
  Hold* bytes = spilled ? &value.in_block() : nullptr;
  ParcelLayout shape{.kept = label.kept,
                     .schema = label.schema,
                     .hash = label.hash,
                     .order = 0,
                     .mark = 0,
                     .value_bytes = size,
                     .key_bytes = std::uint32_t(label.key.size()),
                     .handles = std::uint32_t(value.handles().size()),
                     .spilled = spilled,
                     .owner = 0,
                     .mortal = label.mortal,
                     .reserved = 0};
  const std::size_t before_value = std::size_t(shape.value() - reinterpret_cast<std::byte*>(&shape));
  Hold parcel = allocate_shared(before_value + (spilled ? 0 : size));
  const BlockMemory memory = Session::current().heap().memory();
  BlockHeader& header = memory.header(parcel.block());
  auto& layout = *new (parcel.data()) ParcelLayout(shape);
  layout.owner = block_name(parcel.block(), header);
  std::ranges::copy(value.handles(), layout.holds());
  if (!label.key.empty()) std::memcpy(layout.key(), label.key.data(), label.key.size());
  if (bytes)
    layout.holds()[layout.handles] = std::move(*bytes).into_transit();
  else
    std::memcpy(layout.value(), value.bytes().data(), size);
  // Release: whoever finds the type finds the layout (close_parcel, by a reclaimer).
  header.type.store(BlockType::kParcel, std::memory_order_release);
  SHOAL_KILL_POINT("parcel.typed");
  // From the sender's name, in transit, to the parcel's: at each moment either this process's reclaimer gives the hold
  // up, or whoever closes the parcel.
  for (const HoldRef& ref : std::span(layout.holds(), layout.held())) {
    memory.hold_word(ref.block, ref.word)->store(layout.owner, std::memory_order_release);  // release: R2 of the heap
    SHOAL_KILL_POINT("parcel.held");
  }
  value.sent();
  return parcel;
}

void Entry::take_with_key(const Heap& heap, std::uint64_t parcel) {
  const BlockOffset block{parcel};
  auto& layout = *reinterpret_cast<ParcelLayout*>(heap.memory().payload(block));
  is_there_ = true;
  schema_ = layout.schema;
  size_ = layout.value_bytes;
  order_ = layout.order;
  key_size_ = layout.key_bytes;
  if (layout.held() == 0 && size_ + key_size_ <= sizeof small_) {
    std::memcpy(small_, layout.value(), size_);
    std::memcpy(small_ + size_, layout.key(), key_size_);
  } else {
    parcel_ = Hold::share_of(block);
  }
}

Decoder::Handles Entry::share_handles() const {
  ParcelLayout& message = layout();
  Decoder::Handles handles;
  handles.reserve(message.handles);
  // The parcel keeps these blocks, and this object keeps the parcel.
  for (const HoldRef& ref : std::span(message.holds(), message.handles)) handles.push_back(Hold::share_of(ref.block));
  return handles;
}

void Entry::open() {
  if (parcel_) opened_ = std::make_unique<Decoder::Handles>(share_handles());
}

Decoder Entry::parcel_decoder() const {
  ParcelLayout& message = layout();
  Decoder::Handles handles = opened_ ? std::move(*std::exchange(opened_, nullptr)) : share_handles();
  const std::byte* bytes = message.spilled
                               ? Session::current().heap().memory().payload(message.holds()[message.handles].block)
                               : message.value();
  return Decoder({bytes, size_}, std::move(handles));
}

constinit const BlockKind kParcelKind{.close = &close_parcel};

}  // namespace shoal
