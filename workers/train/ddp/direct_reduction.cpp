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

/// For a bucket with gradients that can be made in their places; undefined for others, and if there is no memory left,
/// since the Reducer's bucket does as well.
at::Tensor memory_of_its_own(const at::Tensor& bucket, const std::vector<at::Tensor>& parameters) {
  if (std::ranges::none_of(
          parameters, [](const at::Tensor& parameter) { return parameter.nbytes() >= GradientPlacement::kLeastBytes; }))
    return {};
  try {
    return GradientPlacement::memory_like(bucket, parameters);
  } catch (const OutOfSharedMemory&) {
    return {};
  }
}

using Node = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

}  // namespace

struct DirectReduction::State {
  struct Slot {
    at::Tensor parameter;
    std::string name;
    at::Tensor in_reducers, in_own;  // its places in the two memories of the bucket
    at::Tensor place;                // the one that counts
    at::Tensor view;                 // the same, given out as the parameter's gradient from when it has come
    std::size_t bucket = 0;
    bool has_come = false;
    Node node;  // adds up the parameter's gradient, and calls the hook
    std::uintptr_t hook = 0;
  };
  struct Bucket {
    std::vector<at::Tensor> buffer;  // one, as the collective wants it: `reducers` or `own`
    at::Tensor reducers, own;        // undefined: nothing is placed
    std::size_t placed = 0;          // its number there
    std::size_t tensors = 0;         // of `reducers`, while views lie there
    bool is_own = false;
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
  void settle(Bucket& bucket, bool in_own, const Slot* newcomer = nullptr);
  bool may_return(const Bucket& bucket, const Slot& newcomer) const;
  void give_up_placing();
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
  GroupsPass pass;                               // that it expects
  std::shared_ptr<GradientPlacement> placement;  // null if nothing is placed
  std::vector<at::Tensor> views;                 // what it is told
  int times_left = 0;                            // by buckets, their own memory

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

DirectReduction::DirectReduction(const NamedTensorList& parameters, const std::vector<c10d::GradBucket>& buckets,
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
                       .in_reducers = {},
                       .in_own = {},
                       .place = {},
                       .view = {},
                       .node = torch::autograd::impl::grad_accumulator(parameter)});
    bytes += parameter.nbytes();
  }
  if (bytes <= kMostPlaced) s.placement = std::make_shared<GradientPlacement>(s.slots.size());
  std::size_t placed = 0;
  for (const c10d::GradBucket& from : buckets) {
    const std::vector<at::Tensor> of_bucket = from.getParameters();
    State::Bucket& bucket =
        s.buckets.emplace_back(State::Bucket{.buffer = {}, .reducers = from.getBuffer(), .own = {}, .slots = {}});
    bucket.buffer = {bucket.reducers};
    const std::vector<at::Tensor> in_reducers = gradients_in(bucket.reducers, of_bucket);
    for (std::size_t k = 0; k < of_bucket.size(); ++k) {
      const std::size_t i = slot_of.at(of_bucket[k].unsafeGetTensorImpl());
      State::Slot& slot = s.slots[i];
      slot.place = slot.in_reducers = in_reducers[k];
      slot.view = untracked_alias(slot.place);
      slot.bucket = s.buckets.size() - 1;
      bucket.slots.push_back(i);
    }
    bucket.tensors = bucket.reducers.storage().use_count();  // it has just been made: nobody else has any
    if (s.placement) bucket.own = memory_of_its_own(bucket.reducers, of_bucket);
    if (!bucket.own.defined()) continue;
    std::vector<at::Tensor> in_own = gradients_in(bucket.own, of_bucket);
    bucket.placed = placed++;
    s.placement->add_bucket(bucket.own, bucket.slots, in_own);
    for (std::size_t k = 0; k < in_own.size(); ++k) s.slots[bucket.slots[k]].in_own = std::move(in_own[k]);
  }
  for (State::Slot& slot : s.slots) slot.hook = slot.node->add_post_hook(std::make_unique<State::Hook>(s, slot));
}

DirectReduction::~DirectReduction() = default;

void DirectReduction::begin_pass(const GroupsPass& pass) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.pass = pass;
  s.expects = true;
  s.next_bucket = 0;
  for (State::Slot& slot : s.slots) slot.has_come = false;
  constexpr int kMostTimes = 32;
  if (s.placement && s.times_left >= kMostTimes) s.give_up_placing();
  for (State::Bucket& bucket : s.buckets) {
    bucket.to_come = bucket.slots.size();
    bucket.work.reset();
  }
  s.let_libtorch_place();
}

void DirectReduction::end_pass() {
  const std::lock_guard lock(state_->mutex);
  state_->expects = false;
  state_->stop_placing();
}

/// But for gradients to which what comes is added.
void DirectReduction::State::let_libtorch_place() {
  if (!placement) return;
  for (const Slot& slot : slots) {
    const at::Tensor& gradient = slot.parameter.grad();
    const bool may_be_made = !gradient.defined() || gradient.is_same(slot.view);  // which may be set to none until then
    views.push_back(may_be_made ? slot.view : at::Tensor());
  }
  placement->begin_pass(placement, views);
  views.clear();
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

/// Whoever got it may have made it another tensor, by set_data(), requires_grad_() or resize_().
void DirectReduction::State::renew_view(Slot& slot) {
  if (slot.view.const_data_ptr() != slot.place.const_data_ptr() || slot.view.requires_grad() ||
      slot.view.sizes() != slot.place.sizes() || slot.view.strides() != slot.place.strides())
    slot.view = untracked_alias(slot.place);
}

bool DirectReduction::State::was_made_in_place(Slot& slot, const at::Tensor& gradient, const at::Tensor& brought) {
  if (!placement) return false;
  const auto i = std::size_t(&slot - slots.data());
  Bucket& bucket = buckets[slot.bucket];
  // Who has a hook behind this one gets the gradient from the engine, too, and may keep it.
  const bool is_last = std::uintptr_t(slot.node->post_hooks().back().get()) == slot.hook;
  if (placement->came(i, gradient, brought) && is_last && !gradient.requires_grad() &&
      has_bytes_of(gradient, slot.view) && (bucket.is_own || may_return(bucket, slot))) {
    if (!bucket.is_own) settle(bucket, true, &slot);
    return true;
  }
  if (!bucket.is_own || !placement->is_taken(i)) return false;
  settle(bucket, false, &slot);  // another tensor lies there
  ++times_left;
  return false;
}

/// Whether all of the bucket's gradients may lie in its own memory: no tensors of the other lie in their places there, and
/// the Reducer's has no tensors that nobody knows, which would stay behind.
bool DirectReduction::State::may_return(const Bucket& bucket, const Slot& newcomer) const {
  return bucket.reducers.storage().use_count() <= bucket.tensors &&
         std::ranges::all_of(bucket.slots, [&](std::size_t i) {
           constexpr std::size_t kKnown = 2;  // owners: this, and the placement
           return &slots[i] == &newcomer || !placement->is_taken(i) ||
                  (!slots[i].has_come && slots[i].view.use_count() <= kKnown);
         });
}

/// The bucket's gradients lie in its own memory from now on, or in the Reducer's, and all that lies in the views goes with
/// them, but the newcomer's. A place that is taken has nothing of them.
void DirectReduction::State::settle(Bucket& bucket, bool in_own, const Slot* newcomer) {
  const at::NoGradGuard no_grad;
  bucket.is_own = in_own;
  bucket.buffer = {in_own ? bucket.own : bucket.reducers};
  placement->set_views_there(bucket.placed, in_own);
  for (const std::size_t i : bucket.slots) {
    Slot& slot = slots[i];
    renew_view(slot);
    const at::Tensor from = std::exchange(slot.place, in_own ? slot.in_own : slot.in_reducers);
    if (&slot != newcomer && (slot.has_come || !placement->is_taken(i))) slot.place.copy_(from);
    // The same tensor, which the program may have.
    c10::TensorImpl& view = *slot.view.unsafeGetTensorImpl();
    view.set_allow_tensor_metadata_change(true);
    view.set_storage_keep_dtype(slot.place.storage());
    view.set_storage_offset(slot.place.storage_offset());
    at::Tensor& gradient = slot.parameter.mutable_grad();
    if (slot.has_come && &slot != newcomer && gradient.defined() && !gradient.is_same(slot.view) &&
        gradient.is_alias_of(from))
      put_in_place(slot, gradient);  // with a graph
  }
}

/// Passes of this model differ too much, or somebody keeps its gradients.
void DirectReduction::State::give_up_placing() {
  for (Bucket& bucket : buckets) {
    if (bucket.is_own) settle(bucket, false);
    bucket.own.reset();
  }
  stop_placing();
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
  const ForwardPassScope scope(pass);
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
