#include <fmt/format.h>
#include <shoal/ipc/codec/encoder.h>

#include <algorithm>
#include <stdexcept>

namespace shoal {

Encoder::~Encoder() {
  for (const HoldRef& handle : handles_) Hold::from_transit(handle).release();
}

std::uint32_t Encoder::add(Hold&& hold) {
  for (std::uint32_t i = 0; i < handles_.size(); ++i)
    if (handles_[i].block == hold.block()) return i;
  handles_.reserve(handles_.size() + 1);  // before the hold changes hands: nothing may throw in between
  handles_.push_back(std::move(hold).into_transit());
  return std::uint32_t(handles_.size() - 1);
}

std::uint32_t Encoder::add(const Hold& hold) {
  for (std::uint32_t i = 0; i < handles_.size(); ++i)
    if (handles_[i].block == hold.block()) return i;
  handles_.reserve(handles_.size() + 1);
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
