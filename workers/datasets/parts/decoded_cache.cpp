#include <shoal/internal/workers/datasets/parts/decoded_cache.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/ipc/process/session.h>
#include <shoal/tensors/share.h>

#include <cstring>
#include <stdexcept>

namespace shoal {

DecodedCache DecodedCache::of(std::int64_t pictures, const ImageShape& shape) {
  DecodedCache cache{empty_shared({pictures, shape.channels, shape.height, shape.width}, at::TensorOptions(at::kByte)),
                     empty_shared({pictures}, at::TensorOptions(at::kInt))};
  cache.states.zero_();
  return cache;
}

std::atomic_ref<std::uint32_t> DecodedCache::state(std::int64_t index) const {
  return std::atomic_ref(static_cast<std::uint32_t*>(states.mutable_data_ptr())[index]);
}

std::optional<at::Tensor> DecodedCache::find(std::int64_t index) const {
  // A1: pairs with R1 in keep, so that the pixels are there.
  if (state(index).load(std::memory_order_acquire) != kFilled) return std::nullopt;
  return pictures.select(0, index);
}

void DecodedCache::keep(std::int64_t index, const at::Tensor& picture) const {
  const at::Tensor place = pictures.select(0, index);
  if (picture.sizes() != place.sizes() || picture.scalar_type() != at::kByte || !picture.is_contiguous()) {
    throw std::invalid_argument(fmt::format("decoded cache: a {} picture of shape {}; its places are uint8 {}",
                                            c10::toString(picture.scalar_type()), picture.sizes().vec(),
                                            place.sizes().vec()));
  }
  Session& session = Session::current();
  const std::uint32_t mine = session.self().word();
  std::uint32_t before = state(index).load(std::memory_order_relaxed);  // relaxed: the CAS below decides
  if (before == kFilled || (before != kEmpty && session.is_alive(ProcessTag::from_word(before)))) return;
  // acquire: nothing is written to the place before it is claimed. What a dead one wrote is overwritten, not read.
  if (!state(index).compare_exchange_strong(before, mine, std::memory_order_acquire)) return;
  SHOAL_KILL_POINT("decoded_cache.keep.claimed");
  std::memcpy(place.mutable_data_ptr(), picture.const_data_ptr(), std::size_t(picture.numel()));
  state(index).store(kFilled, std::memory_order_release);  // R1
}

std::int64_t DecodedCache::filled() const {
  std::int64_t filled = 0;
  for (std::int64_t i = 0; i < states.size(0); ++i) {
    if (state(i).load(std::memory_order_relaxed) == kFilled) ++filled;  // relaxed: a count for people
  }
  return filled;
}

}  // namespace shoal
