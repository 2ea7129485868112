#include <shoal/internal/ipc/codec/encoder.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace shoal {

struct Encoder::Index {
  std::unordered_map<std::uint64_t, std::uint32_t> by_block;
  std::unordered_map<const void*, std::uint32_t> by_thing;
  std::size_t handles = 0, things = 0;  // how many of each are in it
};

Encoder::Encoder() = default;

Encoder::~Encoder() {
  for (const HoldRef& handle : handles_) Hold::from_transit(handle).release();
}

std::optional<std::uint32_t> Encoder::find_handle(BlockOffset block) {
  if (handles_.size() < kIndexFrom) {
    for (std::uint32_t i = 0; i < handles_.size(); ++i)
      if (handles_[i].block == block) return i;
    return std::nullopt;
  }
  if (!index_) index_ = std::make_unique<Index>();
  for (; index_->handles < handles_.size(); ++index_->handles)
    index_->by_block.emplace(handles_[index_->handles].block.value, std::uint32_t(index_->handles));
  auto found = index_->by_block.find(block.value);
  return found == index_->by_block.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::uint32_t> Encoder::find_added_among_many(const void* thing) {
  if (!index_) index_ = std::make_unique<Index>();
  for (; index_->things < added_.size(); ++index_->things)
    index_->by_thing.emplace(added_[index_->things].thing, added_[index_->things].handle);
  auto found = index_->by_thing.find(thing);
  return found == index_->by_thing.end() ? std::nullopt : std::optional(found->second);
}

/// Before the hold changes hands: nothing may throw in between. By doubling: Boost's reserve() takes exactly what it is
/// told.
void Encoder::make_room() {
  if (handles_.size() == handles_.capacity()) handles_.reserve(2 * handles_.size());
}

std::uint32_t Encoder::add(Hold&& hold) {
  if (auto found = find_handle(hold.block())) return *found;
  make_room();
  handles_.push_back(std::move(hold).into_transit());
  return std::uint32_t(handles_.size() - 1);
}

std::uint32_t Encoder::add(const Hold& hold) {
  if (auto found = find_handle(hold.block())) return *found;
  make_room();
  handles_.push_back(hold.share_in_transit());
  return std::uint32_t(handles_.size() - 1);
}

void Encoder::grow(std::size_t needed) {
  // One big array needs one block and one copy: what may follow it, handles included, mostly fits into the slack.
  constexpr std::size_t kSlack = 256;
  std::size_t capacity = std::max(needed + kSlack, capacity_ + capacity_ / 2);
  Hold block = allocate_shared(capacity);
  std::memcpy(block.data(), data_, size_);
  data_ = block.data();
  capacity_ = capacity;
  block_ = std::move(block);
}

void Encoder::copy_to(std::byte* place) const {
  std::memcpy(place, data_, size_);
  if (!handles_.empty()) std::memcpy(place + handles_at(size_), handles_.data(), handles_.size() * sizeof(HoldRef));
}

Hold& Encoder::in_block() {
  if (!block_ || total() > capacity_) {
    Hold block = allocate_shared(total());
    std::memcpy(block.data(), data_, size_);
    data_ = block.data();
    capacity_ = total();
    block_ = std::move(block);
  }
  if (!handles_.empty()) std::memcpy(data_ + handles_at(size_), handles_.data(), handles_.size() * sizeof(HoldRef));
  return block_;
}

void Encoder::fail_deep() {
  throw std::invalid_argument(
      fmt::format("a value nested deeper than {} levels cannot be encoded: send a long list or a deep tree as a "
                  "std::vector of nodes that refer to each other by index",
                  kDeepestNesting));
}

}  // namespace shoal
