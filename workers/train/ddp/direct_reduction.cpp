#include <shoal/internal/workers/train/ddp/direct_reduction.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <shoal/internal/workers/train/ddp/gradient_placement.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/internal/workers/train/ddp/owned_gradients.h>
#include <shoal/ipc/error.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_map>
#include <utility>

namespace shoal {
namespace {

/// Whether the gradient's bytes are what has to lie in the view.
bool has_bytes_of(const at::Tensor& gradient, const at::Tensor& view) {
  constexpr c10::DispatchKeySet kNotYet(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  return gradient.layout() == c10::kStrided && gradient.is_cpu() && gradient.scalar_type() == view.scalar_type() &&
         gradient.sizes() == view.sizes() && gradient.strides() == view.strides() &&
         gradient.is_non_overlapping_and_dense() && !gradient.key_set().has_any(kNotYet);
}

/// Another tensor of the same elements, which autograd does not know to be a view.
at::Tensor untracked_alias(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_view_tracking;
  return tensor.detach();
}

using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

}  // namespace

struct DirectReduction::State {
  struct Slot {
    at::Tensor parameter;
    std::string name;
    at::Tensor place;  // in the bucket
    at::Tensor view;   // the same, given out as the parameter's gradient from when it has come
    std::size_t bucket = 0;
    bool has_come = false;
    Node node;  // adds up the parameter's gradient, and calls the hook
    std::uintptr_t hook = 0;
  };
  struct Bucket {
    std::vector<at::Tensor> buffer;  // one, as the collective wants it
    std::vector<std::size_t> slots;  // as they lie there
    std::size_t to_come = 0;
    c10::intrusive_ptr<c10d::Work> work = {};
  };
  /// Owned by the node, which calls it after it has added up.
  struct Hook final : torch::autograd::FunctionPostHook {
    Hook(State& state, Slot& slot) : state(state), slot(slot) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list& inputs) override {
      const std::lock_guard lock(state.mutex);
      if (state.expects) state.comes(slot, inputs.at(0));
      return outputs;
    }
    State& state;
    Slot& slot;
  };

  void comes(Slot& slot, const at::Tensor& brought);
  bool was_made_in_place(Slot& slot, const at::Tensor& gradient, const at::Tensor& brought);
  static void put_in_place(Slot& slot, at::Tensor& gradient);
  static void renew_view(Slot& slot);
  void move(Bucket& bucket, const Slot& newcomer);
  void let_libtorch_place();
  void stop_placing();
  void reduce_next();
  void finish();

  std::mutex mutex;  // several threads may be in the backward passes of parts of one forward pass
  c10::intrusive_ptr<c10d::Backend> backend;
  std::vector<Slot> slots;  // as the parameters
  std::vector<Bucket> buckets;
  std::size_t next_bucket = 0;
  bool expects = false;
  std::shared_ptr<GradientPlacement> placement;  // null if nothing is placed
  std::vector<at::Tensor> given_out;             // what it is told
  int moves = 0;

  ~State() {
    stop_placing();
    for (Slot& slot : slots) slot.node->del_post_hook(slot.hook);
  }
};

bool DirectReduction::is_enough(const DistributedDataParallelOptions& options, const ModuleParts& parts,
                                const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  return !options.find_unused_parameters && !options.static_graph && options.gradient_as_bucket_view &&
         parts.delayed.empty() && std::ranges::none_of(parts.expect_sparse, std::identity()) &&
         std::ranges::all_of(parts.parameters, [](const auto& named) { return named.second.is_cpu(); }) &&
         averages(process_group);
}

DirectReduction::DirectReduction(const NamedTensors& parameters, const std::vector<c10d::GradBucket>& buckets,
                                 const c10::intrusive_ptr<c10d::ProcessGroup>& process_group)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.backend = process_group->getBackend(c10::kCPU);
  std::unordered_map<const c10::TensorImpl*, std::size_t> slot_of;
  s.slots.reserve(parameters.size());  // hooks refer to them
  std::size_t bytes = 0;
  for (const auto& [name, parameter] : parameters) {
    slot_of[parameter.unsafeGetTensorImpl()] = s.slots.size();
    s.slots.push_back({.parameter = parameter,
                       .name = name,
                       .place = {},
                       .view = {},
                       .node = torch::autograd::impl::grad_accumulator(parameter)});
    bytes += parameter.nbytes();
  }
  if (bytes <= kMostPlaced) s.placement = std::make_shared<GradientPlacement>(s.slots.size());
  for (const c10d::GradBucket& from : buckets) {
    const std::vector<at::Tensor> of_bucket = from.getParameters();
    const bool is_placed = s.placement && std::ranges::any_of(of_bucket, [](const at::Tensor& parameter) {
                             return parameter.nbytes() >= GradientPlacement::kLeastBytes;
                           });
    State::Bucket bucket{
        .buffer = {is_placed ? GradientPlacement::memory_like(from.getBuffer(), of_bucket) : from.getBuffer()},
        .slots = {}};
    const std::vector<at::Tensor> views = gradients_in(bucket.buffer[0], of_bucket);
    for (std::size_t k = 0; k < of_bucket.size(); ++k) {
      const std::size_t i = slot_of.at(of_bucket[k].unsafeGetTensorImpl());
      State::Slot& slot = s.slots[i];
      slot.place = views[k];
      slot.view = untracked_alias(views[k]);
      slot.bucket = s.buckets.size();
      bucket.slots.push_back(i);
      if (is_placed) s.placement->put(i, bucket.buffer[0], slot.place);
    }
    s.buckets.push_back(std::move(bucket));
  }
  for (State::Slot& slot : s.slots) slot.hook = slot.node->add_post_hook(std::make_unique<State::Hook>(s, slot));
}

DirectReduction::~DirectReduction() = default;

void DirectReduction::begin_pass() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.expects = true;
  s.next_bucket = 0;
  for (State::Slot& slot : s.slots) slot.has_come = false;
  for (State::Bucket& bucket : s.buckets) {
    bucket.to_come = bucket.slots.size();
    bucket.work.reset();
  }
  s.let_libtorch_place();
}

void DirectReduction::end_pass() {
  state_->expects = false;
  state_->stop_placing();
}

/// But for gradients to which what comes is added.
void DirectReduction::State::let_libtorch_place() {
  if (!placement) return;
  for (const Slot& slot : slots) {
    const at::Tensor& gradient = slot.parameter.grad();
    const bool may_be_made = !gradient.defined() || gradient.is_same(slot.view);  // which may be set to none until then
    given_out.push_back(may_be_made ? slot.view : at::Tensor());
  }
  placement->begin_pass(placement, given_out);
  given_out.clear();
}

void DirectReduction::State::stop_placing() {
  if (placement) placement->end_pass();
}

void DirectReduction::State::comes(Slot& slot, const at::Tensor& brought) {
  if (std::exchange(slot.has_come, true))
    throw Error(fmt::format(
        "the gradient of {} came twice in one backward pass, the second time after its bucket may have been reduced: "
        "set DistributedDataParallelOptions::static_graph for parameters that several checkpointed segments use, "
        "or name it in DistributedDataParallelOptions::delayed",
        slot.name));
  at::Tensor& gradient = slot.parameter.mutable_grad();
  if (was_made_in_place(slot, gradient, brought)) {
    renew_view(slot);
    gradient = slot.view;
    slot.view.unsafeGetTensorImpl()->bump_version();
  } else {
    put_in_place(slot, gradient);
  }
  if (--buckets[slot.bucket].to_come > 0) return;
  while (next_bucket < buckets.size() && buckets[next_bucket].to_come == 0) reduce_next();
}

/// Whoever got it may have made it another tensor, by set_data() or requires_grad_().
void DirectReduction::State::renew_view(Slot& slot) {
  if (slot.view.const_data_ptr() != slot.place.const_data_ptr() || slot.view.requires_grad())
    slot.view = untracked_alias(slot.place);
}

bool DirectReduction::State::was_made_in_place(Slot& slot, const at::Tensor& gradient, const at::Tensor& brought) {
  if (!placement) return false;
  const auto i = std::size_t(&slot - slots.data());
  if (placement->came(i, gradient, brought) && !gradient.requires_grad() && has_bytes_of(gradient, slot.view))
    return true;
  if (placement->is_taken(i)) move(buckets[slot.bucket], slot);
  return false;
}

/// To memory in which no other tensors lie. All gradients that have come go with it, but the newcomer's.
void DirectReduction::State::move(Bucket& bucket, const Slot& newcomer) {
  const at::AutoDispatchBelowADInplaceOrView no_view_tracking;
  std::vector<at::Tensor> parameters;
  for (const std::size_t i : bucket.slots) parameters.push_back(slots[i].parameter);
  bucket.buffer = {GradientPlacement::memory_like(bucket.buffer[0], parameters)};
  const std::vector<at::Tensor> views = gradients_in(bucket.buffer[0], parameters);
  for (std::size_t k = 0; k < bucket.slots.size(); ++k) {
    Slot& slot = slots[bucket.slots[k]];
    const at::Tensor place = std::exchange(slot.place, views[k]);
    const at::Tensor view = std::exchange(slot.view, untracked_alias(views[k]));
    placement->put(bucket.slots[k], bucket.buffer[0], slot.place);
    if (!slot.has_come || &slot == &newcomer) continue;
    at::Tensor& gradient = slot.parameter.mutable_grad();
    const bool is_there = gradient.defined() && gradient.is_alias_of(place);
    at::Tensor moved = is_there ? gradient : view;
    put_in_place(slot, moved);
    if (is_there) gradient = moved;
  }
  constexpr int kMostMoves = 8;
  if (++moves < kMostMoves) return;
  stop_placing();  // passes of this model differ, or its gradients have owners who keep them
  placement.reset();
}

/// What has come, or zero where its path ends on this rank, since the others' may not. The gradient is the view then.
void DirectReduction::State::put_in_place(Slot& slot, at::Tensor& gradient) {
  renew_view(slot);
  if (gradient.defined() && gradient.requires_grad()) {  // by create_graph: its graph goes on to the view
    const at::Tensor view = untracked_alias(slot.place);
    view.copy_(gradient);
    gradient = view;
    return;
  }
  const at::NoGradGuard no_grad;
  if (!gradient.defined()) {
    slot.view.zero_();
  } else if (!has_bytes_of(gradient, slot.view)) {
    slot.view.copy_(gradient);
  } else if (gradient.const_data_ptr() != slot.view.const_data_ptr() && gradient.nbytes() != 0) {
    std::memcpy(slot.view.mutable_data_ptr(), gradient.const_data_ptr(), gradient.nbytes());
    slot.view.unsafeGetTensorImpl()->bump_version();  // for graphs that have saved the last step's gradient
  }  // otherwise it was set to zero, not to none: what came was added where it lies
  gradient = slot.view;
}

void DirectReduction::State::reduce_next() {
  Bucket& bucket = buckets[next_bucket++];
  try {
    bucket.work = begin_average(*backend, bucket.buffer);
  } catch (...) {
    expects = false;  // the ranks start anew before the next pass
    stop_placing();
    throw;
  }
  // At the end of the backward pass: of the one within it that brought the last gradient, if a segment is checkpointed.
  if (next_bucket == buckets.size()) torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
}

void DirectReduction::State::finish() {
  const std::lock_guard lock(mutex);
  expects = false;
  stop_placing();
  for (Bucket& bucket : buckets) std::exchange(bucket.work, {})->wait();
  for (Slot& slot : slots) {
    at::Tensor& gradient = slot.parameter.mutable_grad();
    if (!gradient.defined())
      gradient = slot.view;  // cleared since it came; the other ranks have the mean
    else if (!gradient.is_alias_of(slot.place))
      throw Error(fmt::format(
          "the gradient of {} was replaced in the backward pass, after it had come, so it is not the mean over all "
          "ranks: replace it by a hook of the parameter or after backward(), and give each parameter to one "
          "DistributedDataParallel",
          slot.name));
  }
}

std::vector<std::string> DirectReduction::without_gradient() const {
  std::vector<std::string> names;
  if (!state_->expects || std::ranges::none_of(state_->slots, &State::Slot::has_come)) return names;
  for (const State::Slot& slot : state_->slots)
    if (!slot.has_come) names.push_back(slot.name);
  return names;
}

}  // namespace shoal
