#include <shoal/internal/workers/train/ddp/gradient_placement.h>

#include <shoal/internal/tensors/storage/storage.h>
#include <shoal/internal/workers/train/ddp/owned_gradients.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace shoal {
namespace {

constexpr std::size_t kAlignment = 64;  // libtorch's

std::size_t misalignment(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % kAlignment; }

/// Whether nobody has the gradient's memory but the gradient, the tensor that brought it, and the one whose view that is:
/// each has one owner, the last two the engine.
bool is_only_theirs(const at::Tensor& gradient, const at::Tensor& brought) {
  std::size_t known = 1;
  const auto is_alone = [&](const at::TensorBase& tensor) {
    if (tensor.is_same(gradient) || !tensor.is_alias_of(gradient)) return true;
    ++known;
    return tensor.use_count() == 1;
  };
  return gradient.use_count() == 1 && is_alone(brought) && (!brought.is_view() || is_alone(brought._base())) &&
         gradient.storage().use_count() == known;
}

}  // namespace

at::Tensor GradientPlacement::memory_like(const at::Tensor& bucket, const std::vector<at::Tensor>& parameters) {
  // Gradients lie one behind the other, as on all ranks. So the bucket begins where most of them come to lie well.
  std::array<std::size_t, kAlignment> bytes_at{};
  for (const at::Tensor& view : gradients_in(bucket, parameters)) {
    const std::size_t from_begin = std::size_t(view.storage_offset() * std::int64_t(view.element_size())) -
                                   std::size_t(bucket.storage_offset() * std::int64_t(bucket.element_size()));
    if (view.nbytes() >= kLeastBytes) bytes_at[from_begin % kAlignment] += view.nbytes();
  }
  const auto most = std::size_t(std::ranges::max_element(bytes_at) - bytes_at.begin());
  const std::size_t shift = (kAlignment - most) % kAlignment;
  at::Tensor memory =
      tensor_over(c10::Storage(storage_of(allocate_shared(bucket.nbytes() + shift), bucket.nbytes() + shift)),
                  bucket.scalar_type());
  memory.unsafeGetTensorImpl()->set_storage_offset(std::int64_t(shift / bucket.element_size()));
  memory.unsafeGetTensorImpl()->set_sizes_contiguous(bucket.sizes());
  return memory;
}

void GradientPlacement::add_bucket(const at::Tensor& memory, const std::vector<std::size_t>& parameters,
                                   const std::vector<at::Tensor>& places) {
  const std::lock_guard lock(mutex_);
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    const at::Tensor& at = places[k];
    Place& place = places_[parameters[k]];
    place = {.data = at.mutable_data_ptr(), .bytes = at.nbytes(), .bucket = buckets_.size()};
    if (place.bytes < kLeastBytes || misalignment(place.data) != 0 || !at.is_non_overlapping_and_dense()) continue;
    place.occupancy = std::make_shared<Occupancy>();
    place.occupancy->bucket = memory;
    auto size = std::ranges::find(sizes_, place.bytes, &Size::bytes);
    if (size == sizes_.end()) size = sizes_.insert(sizes_.end(), Size{.bytes = place.bytes, .places = {}, .made = {}});
    size->places.push_back(parameters[k]);
  }
  buckets_.push_back({.memory = memory, .tensors = memory.storage().use_count(), .places = places.size()});
}

void GradientPlacement::set_views_there(std::size_t bucket, bool are_there) {
  const std::lock_guard lock(mutex_);
  buckets_[bucket].has_views = are_there;
}

void GradientPlacement::begin_pass(const std::shared_ptr<GradientPlacement>& self,
                                   const std::vector<at::Tensor>& views) {
  {
    const std::lock_guard lock(mutex_);
    in_pass_ = true;
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i].view = views[i];
    for (Size& size : sizes_) size.made.clear();
  }
  place_tensors(self);
}

void GradientPlacement::end_pass() {
  stop_placing_tensors(*this);
  const std::lock_guard lock(mutex_);
  in_pass_ = false;
  for (Place& place : places_) place.view.reset();
}

c10::DataPtr GradientPlacement::allocate(std::size_t bytes) {
  if (bytes < kLeastBytes || torch::autograd::get_current_graph_task_id() < 0)
    return private_allocator()->allocate(bytes);
  const std::lock_guard lock(mutex_);
  constexpr std::size_t kMostMade = 4096;  // of a pass that never ends
  const auto size = std::ranges::find(sizes_, bytes, &Size::bytes);
  if (!in_pass_ || size == sizes_.end() || size->made.size() == kMostMade) return private_allocator()->allocate(bytes);
  for (const std::size_t i : size->places)
    if (places_[i].turn == size->made.size() && may_give(places_[i])) {
      size->made.push_back(places_[i].data);
      return give(places_[i]);
    }
  c10::DataPtr memory = private_allocator()->allocate(bytes);
  size->made.push_back(memory.get());
  return memory;
}

/// Whether nobody has what lies in the place: the view has no owner but the caller of begin_pass() and this (it is not the
/// parameter's gradient, no graph has saved it, the program has not kept it), and there are no tensors of the bucket's
/// memory but those that are known, so no aliases of views either.
bool GradientPlacement::may_give(const Place& place) const {
  if (!place.view.defined() || !place.occupancy) return false;
  const Bucket& bucket = buckets_[place.bucket];
  return bucket.memory.storage().use_count() == bucket.tensors + (bucket.has_views ? bucket.places : 0) &&
         (!bucket.has_views || place.view.use_count() == 2) &&
         !place.occupancy->taken.load(std::memory_order_acquire);  // O1: pairs with R1: its last use is over
}

c10::DataPtr GradientPlacement::give(Place& place) {
  place.view.reset();
  place.occupancy->taken.store(true, std::memory_order_relaxed);  // relaxed: by the mutex
  place.occupancy->self = place.occupancy;
  const auto leave = [](void* occupancy) {
    const auto own = std::exchange(static_cast<Occupancy*>(occupancy)->self, {});
    own->taken.store(false, std::memory_order_release);  // R1
  };
  return {place.data, place.occupancy.get(), leave, c10::Device(c10::kCPU)};
}

bool GradientPlacement::came(std::size_t parameter, const at::Tensor& gradient, const at::Tensor& brought) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[parameter];
  place.view.reset();
  if (!place.occupancy || !gradient.defined() || !gradient.has_storage()) return false;
  const void* const data = gradient.const_data_ptr();
  const auto size = std::ranges::find(sizes_, place.bytes, &Size::bytes);
  // The last one: before that the memory was another's.
  const auto last = std::ranges::find(size->made.rbegin(), size->made.rend(), data);
  if (last != size->made.rend()) place.turn = std::size_t(size->made.rend() - last) - 1;
  // By a storage of its own, not the bucket's.
  if (data != place.data || !place.occupancy->taken.load(std::memory_order_relaxed)) return false;
  return brought.defined() && is_only_theirs(gradient, brought);
}

bool GradientPlacement::is_taken(std::size_t parameter) const {
  const std::lock_guard lock(mutex_);
  const Place& place = places_[parameter];
  return place.occupancy && place.occupancy->taken.load(std::memory_order_acquire);  // O1
}

}  // namespace shoal
