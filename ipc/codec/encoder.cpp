#include <shoal/ipc/codec/encoder.h>

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

}  // namespace shoal
