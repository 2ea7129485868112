#include <shoal/internal/workers/train/ddp/gradient_reducer.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/ddp/delayed_gradients.h>
#include <shoal/internal/workers/train/ddp/direct_reduction.h>
#include <shoal/internal/workers/train/ddp/equal_tensors.h>
#include <shoal/internal/workers/train/ddp/group_passes.h>
#include <shoal/internal/workers/train/ddp/mean.h>
#include <shoal/internal/workers/train/ddp/module_parts.h>
#include <shoal/internal/workers/train/ddp/owned_gradients.h>
#include <shoal/internal/workers/train/ddp/pass_on.h>
#include <shoal/internal/workers/train/ddp/reducer_factory.h>
#include <shoal/internal/workers/train/ddp/reducer_hook.h>
#include <shoal/internal/workers/train/group/forward_pass.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

namespace shoal {
namespace {

/// While buckets are made. They are born in the heap; and the gradients, which are views of them, are made
/// as tensors that autograd does not know to be views: an optimizer's zero_grad() detaches gradients in
/// place, which libtorch forbids for views that it knows of.
struct BucketScope {
  SharedMemoryScope born_shared;
  at::AutoDispatchBelowADInplaceOrView no_view_tracking;
};

/// The parameters that the Reducer's complaint about an unfinished backward pass lists by their indices.
std::string names_without_gradient(const std::string& complaint, const NamedTensorList& parameters) {
  constexpr std::string_view kBefore = "did not receive grad for rank";
  auto at = complaint.rfind(kBefore);
  if (at == std::string::npos || (at = complaint.find(": ", at)) == std::string::npos) return {};
  std::istringstream indices(complaint.substr(at + 2));
  std::vector<std::string> names;
  for (std::size_t index; indices >> index;)
    if (index < parameters.size()) names.push_back(parameters[index].first);
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void refuse_without_gradient(const std::string& names, bool static_graph) {
  throw Error(fmt::format(
      "the last backward pass gave no gradient to: {}. {}", names,
      static_graph ? "DistributedDataParallelOptions::static_graph says that each pass uses what the first one used: "
                     "leave it out, and set find_unused_parameters"
                   : "Let all of forward's result go into the loss, or set "
                     "DistributedDataParallelOptions::find_unused_parameters"));
}

/// The number by which the Reducer divides, in the form in which it asks for it.
class DivisorWork final : public c10d::Work {
 public:
  explicit DivisorWork(int divisor) : divisor_(at::full({1}, divisor, at::kInt)) { finish(); }
  bool wait(std::chrono::milliseconds) override { return true; }
  std::vector<at::Tensor> result() override { return {divisor_}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(std::vector<at::Tensor>{divisor_}));
    return future;
  }

 private:
  at::Tensor divisor_;
};

}  // namespace

struct GradientReducer::State {
  void make_reducer_anew();
  void watch_gradients(const NamedTensorList& watched, bool reduced_by_reducer);
  void queue_what_comes_last();
  void gradient_came();
  void check_layout(std::size_t parameter, const at::Tensor& gradient) const;
  void start_anew();
  JoinStep announced(const Joinable& self);
  void begin_step(const JoinStep& begun, bool has_data);
  void equalize_buffers(bool has_data);
  void give_all(int root, bool buffers_too) const;
  void shadow_backward();
  void adopt_buckets() {
    const auto buckets = reducer->get_grad_buckets(/*return_zero_tensors=*/false);
    hook_calls.buckets = buckets.size();
    if (owned) owned->adopt(buckets);
  }
  void give_hook_to_reducer() {
    reducer->register_comm_hook(std::make_unique<HookOfReducer>(hook, hook_calls, divisor, pass,
                                                                /*all_come=*/!options.skip_all_reduce_unused_params));
  }
  bool syncs_buffers(BufferSync one, BufferSync other) const {
    return options.broadcast_buffers && (options.buffer_sync == one || options.buffer_sync == other);
  }
  bool goes_directly() const { return direct && !join && left_to_reducer == 0; }
  /// What a step is without a Join.
  JoinStep everyones_step() const { return {.active = process_group->getSize(), .first_active = 0, .syncs = syncs}; }

  DistributedDataParallelOptions options;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  ModuleParts parts;
  std::unique_ptr<DelayedGradients> delayed;
  std::shared_ptr<OwnedGradients> owned;  // where gradients are sharded
  CommHook hook;
  HookCalls hook_calls;
  bool hook_is_default = false;             // the mean, since nobody wanted anything else before the first step
  std::unique_ptr<DirectReduction> direct;  // once the Reducer has done its part
  // Of gradients, in a pass that it leads: until all have come it leads the next one, too.
  std::atomic<std::size_t> left_to_reducer{0};
  int divisor = 1;  // of the step that has begun
  LoggedReducer reducer;
  bool learning_queued = false, delayed_queued = false;
  bool has_learnt =
      false;  // this Reducer, a static graph: by the first backward pass, of one forward pass or of several
  bool has_begun = false;  // this Reducer: a forward pass that reduces
  bool syncs = true;
  bool synced_last_time = true;
  Join* join = nullptr;
  JoinStep step;
  GroupsPass pass;                     // the last one that reduces
  std::uint64_t mismatches_known = 0;  // in the group, when all last started anew
  std::vector<std::pair<at::Tensor, unsigned>> hooks;
  c10::intrusive_ptr<BackwardBegins> backward_begins = c10::make_intrusive<BackwardBegins>();
  bool unfinished =
      false;  // a pass that has begun a collective or a gradient, and not ended; so it stays after an exception
  /// Whether this model's pass has failed, or the group's ranks have called different collectives since all last started
  /// anew: another rank may know by that alone that it has to, with models of which nothing failed here.
  bool has_failed() const { return unfinished || mismatches_known != mismatches_in(process_group); }
  ~State() {
    backward_begins->call = nullptr;  // graphs may live longer
    for (auto& [parameter, hook] : hooks) parameter.remove_hook(hook);
  }
};

GradientReducer::GradientReducer(const DistributedDataParallelOptions& options, torch::nn::Module& module,
                                 c10::intrusive_ptr<c10d::ProcessGroup> process_group)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = options;
  s.process_group = std::move(process_group);
  s.divisor = s.process_group->getSize();
  // Comes first: a broadcast between tensors of other sizes would say less.
  s.parts = parts_on_all_ranks(s.process_group, module, options);
  if (s.parts.parameters.empty())
    throw std::invalid_argument("DistributedDataParallel of a module without parameters that require gradients");
  s.pass = pass_of_new_model(s.process_group);
  s.mismatches_known = mismatches_in(s.process_group);
  if (options.init_sync) s.give_all(0, options.init_sync_buffers);
  if (!s.parts.delayed.empty()) s.delayed = std::make_unique<DelayedGradients>(s.parts.delayed);
  s.make_reducer_anew();
  s.watch_gradients(s.parts.parameters, true);
  s.watch_gradients(s.parts.delayed, false);
}

void GradientReducer::State::make_reducer_anew() {
  ReducerArguments arguments{.parameters = tensors_of(parts.parameters),
                             .bucket_indices = {},
                             .process_group = process_group,
                             .expect_sparse = parts.expect_sparse,
                             .bucket_bytes = options.bucket_bytes,
                             .first_bucket_bytes = options.first_bucket_bytes,
                             .find_unused_parameters = options.find_unused_parameters,
                             .gradient_as_bucket_view = options.gradient_as_bucket_view,
                             .skip_all_reduce_unused_params = options.skip_all_reduce_unused_params,
                             .parameter_names = {}};
  for (std::size_t i = 0; i < parts.parameters.size(); ++i) arguments.parameter_names[i] = parts.parameters[i].first;
  // A first guess, in the reverse order of use; after the first backward pass the Reducer knows better.
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      arguments.parameters, {std::size_t(options.first_bucket_bytes), std::size_t(options.bucket_bytes)},
      arguments.expect_sparse);
  std::ranges::reverse(buckets);
  arguments.bucket_indices = std::move(buckets);
  const TrainedScope all_trained(parts.parameters);
  BucketScope scope;
  backward_begins->call = nullptr;
  if (owned) owned->drop_views();
  direct.reset();
  reducer = {};  // its hooks go before the next one's come
  reducer = make_reducer(std::move(arguments));
  has_begun = has_learnt = false;
  left_to_reducer = 0;
  learning_queued = delayed_queued = false;
  hook_calls.in_step = 0;
  if (options.static_graph) reducer->set_static_graph();
  if (options.static_graph || delayed) backward_begins->call = [this] { queue_what_comes_last(); };
  if (hook) give_hook_to_reducer();
  adopt_buckets();
}

/// At the end of the whole backward pass, not of one that a checkpointed segment runs inside: what the first step of a
/// static graph has learnt is reduced, and gradients that are delayed.
void GradientReducer::State::queue_what_comes_last() {
  auto& engine = torch::autograd::Engine::get_default_engine();
  if (options.static_graph && !has_learnt && !std::exchange(learning_queued, true))
    engine.queue_callback([this] {
      reducer->delay_all_reduce();
      has_learnt = true;
    });
  // Behind the Reducer's own, which was queued later.
  if (delayed && !std::exchange(delayed_queued, true))
    engine.queue_callback([this] {
      torch::autograd::Engine::get_default_engine().queue_callback([this] {
        const ForwardPassScope scope(pass);
        delayed->reduce(process_group, divisor);
        delayed_queued = false;
      });
    });
  gradient_came();  // an exception before the first gradient drops what was queued, too
}

/// The Reducer says neither which gradient has a layout that it cannot do nor, when the next pass begins, whether the
/// last one came to its end.
void GradientReducer::State::watch_gradients(const NamedTensorList& watched, bool reduced_by_reducer) {
  for (std::size_t i = 0; i < watched.size(); ++i) {
    at::Tensor parameter = watched[i].second;
    const unsigned number = parameter.register_hook([this, i, reduced_by_reducer](const at::Tensor& gradient) {
      // As the Reducer: what holds is whether the forward pass was in a no_sync(), wherever the backward pass is.
      if (owned && reduced_by_reducer) owned->comes(i, synced_last_time, divisor);
      if (!synced_last_time) return;
      gradient_came();
      if (!reduced_by_reducer) return;
      check_layout(i, gradient);
      if (left_to_reducer > 0) --left_to_reducer;
    });
    hooks.emplace_back(parameter, number);
  }
}

void GradientReducer::State::gradient_came() {
  if (unfinished) return;
  unfinished = true;
  const std::uint64_t since = trace::is_on() ? trace::now() : 0;
  // Callbacks of a backward pass run at its end, and only if it has no error. The Reducer's was queued later, waits for
  // all buckets and throws what went wrong with one that a thread reduced: what is queued now comes behind it.
  torch::autograd::Engine::get_default_engine().queue_callback([this, since] {
    torch::autograd::Engine::get_default_engine().queue_callback([this, since] {
      if (owned) owned->end_pass();
      unfinished = false;
      if (since != 0) trace::write(TraceKind::kSpan, since, trace::now(), "backward");
    });
  });
}

void GradientReducer::State::check_layout(std::size_t parameter, const at::Tensor& gradient) const {
  if (!gradient.defined()) return;
  const bool sparse = parts.expect_sparse[parameter];
  if (gradient.layout() == (sparse ? c10::kSparse : c10::kStrided)) return;
  const std::string& name = parts.parameters[parameter].first;
  if (sparse)
    throw std::invalid_argument(
        fmt::format("the gradient of {} is {}, and a sparse one was announced, by "
                    "DistributedDataParallelOptions::sparse or EmbeddingOptions::sparse",
                    name, c10::str(gradient.layout())));
  throw std::invalid_argument(fmt::format(
      "the gradient of {} is {}: DistributedDataParallel knows it of weights of Embedding and EmbeddingBag; "
      "name others in DistributedDataParallelOptions::sparse, or make it dense, for example by "
      "EmbeddingOptions(...).sparse(false)",
      name, c10::str(gradient.layout())));
}

/// After a pass that an exception ended, here or on another rank. The Reducer waits for gradients that will not come, and
/// has no way back; and another rank may have come further. So all have to be here: the barrier says that it is this one, and
/// so goes with nothing else that a rank could be in, the program's own barriers included.
void GradientReducer::State::start_anew() {
  unfinished = true;  // until it is done
  pass.pass.number = ForwardPass::kStartsAnew;
  {
    const ForwardPassScope scope(pass);
    process_group->barrier()->wait();
  }
  mismatches_known = mismatches_in(process_group);
  if (hook && !hook_is_default) {
    // Some ranks' hooks may have come to a step that others' have not.
    std::vector<at::Tensor> step{at::full({1}, hook_calls.step, parts.parameters[0].second.options().dtype(at::kLong))};
    process_group->allreduce(step, {.reduceOp = c10d::ReduceOp::MAX})->wait();
    hook_calls.step = step[0].item<std::int64_t>();
  }
  make_reducer_anew();
  pass.pass.number = 0;
  unfinished = false;
}

/// The step, in a Join. A rank that starts anew is in its barrier instead, and so this one has to come there as well;
/// but not where all ranks have met, and are told the same.
JoinStep GradientReducer::State::announced(const Joinable& self) {
  try {
    return join->announce(self, syncs);
  } catch (...) {
    unfinished = unfinished || !join->has_met();
    throw;
  }
}

/// What each step begins with, on all ranks.
void GradientReducer::State::begin_step(const JoinStep& begun, bool has_data) {
  step = begun;
  if (step.syncs && !hook && averages(process_group)) {
    // Without a hook the Reducer divides each gradient as it copies it into its bucket, by a call of libtorch's for each that
    // takes three times as long as a copy's. The reduction can do it besides.
    hook = [group = process_group](GradBucket& bucket) { return begin_mean(group, bucket); };
    hook_is_default = true;
    give_hook_to_reducer();
  }
  divisor = join ? join->divisor() : process_group->getSize();
  if (step.syncs) {
    if (!goes_directly()) reducer->prepare_for_forward();
    has_begun = true;
  }
  unfinished = true;  // another rank may be starting anew: if a collective says so, this one has to as well
  if (direct)
    if (const auto names = direct->without_gradient(); !names.empty())
      refuse_without_gradient(fmt::format("{}", fmt::join(names, ", ")), false);
  try {
    bool rebuilt = false;
    {
      const BucketScope scope;
      rebuilt = reducer->rebuild_buckets();
    }
    if (rebuilt) adopt_buckets();
    if (rebuilt && hook_is_default && DirectReduction::is_enough(options, parts, process_group)) {
      const TrainedScope all_trained(parts.parameters);
      const BucketScope scope;
      direct = std::make_unique<DirectReduction>(
          parts.parameters, reducer->get_grad_buckets(/*return_zero_tensors=*/false), process_group);
    }
  } catch (const c10::Error& error) {
    const std::string names = names_without_gradient(error.what_without_backtrace(), parts.parameters);
    if (names.empty()) throw;
    refuse_without_gradient(names, options.static_graph);
  }
  if (syncs_buffers(BufferSync::broadcast_before, BufferSync::average_before) && synced_last_time)
    equalize_buffers(has_data);
  // Behind the buffers: a rank that accumulates gradients has had its own in the first pass in no_sync(), which counts nothing.
  if (step.syncs) ++pass.pass.number;
  unfinished = false;
}

void GradientReducer::State::equalize_buffers(bool has_data) {
  unfinished = true;  // as in begin_step()
  const ForwardPassScope scope(pass);
  if (options.buffer_sync == BufferSync::average_before || options.buffer_sync == BufferSync::average_after)
    average_tensors(process_group, parts.buffers, step.first_active, step.active, has_data);
  else
    broadcast_tensors(process_group, parts.buffers, step.first_active);
  unfinished = false;
}

/// All ranks get the root's parameters, and buffers.
void GradientReducer::State::give_all(int root, bool buffers_too) const {
  std::vector<at::Tensor> tensors = tensors_of(parts.all);
  if (!buffers_too) tensors.resize(tensors.size() - parts.buffers.size());  // which come last
  broadcast_tensors(process_group, tensors, root);
}

/// The collectives of a backward pass on a rank that has no gradients, in the Reducer's order. The gradients of the
/// others become this rank's, for an optimizer that steps on its part of the parameters.
void GradientReducer::State::shadow_backward() {
  const at::NoGradGuard no_grad;
  const bool learns = options.static_graph && !has_learnt;
  hook_calls.in_step = 0;
  at::Tensor used;
  const auto reduce_used = [&] {
    used = reducer->get_local_used_map_on_device();
    used.zero_();
    std::vector<at::Tensor> sum{used};
    process_group->allreduce(sum)->wait();
  };
  if (learns)
    reduce_used();
  else if (options.static_graph)
    used = reducer->get_local_used_map_on_device();  // as the first step has left it
  std::vector<c10d::GradBucket> buckets = reducer->get_grad_buckets(/*return_zero_tensors=*/true);
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reductions;
  reductions.reserve(buckets.size());
  for (c10d::GradBucket& bucket : buckets) reductions.push_back(reducer->run_comm_hook(bucket));
  if (options.find_unused_parameters && !options.static_graph) reduce_used();
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of;
  for (std::size_t i = 0; i < parts.parameters.size(); ++i)
    index_of[parts.parameters[i].second.unsafeGetTensorImpl()] = i;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    reductions[i]->wait();
    const at::Tensor reduced = c10d::detail::parseCppCommHookResult(reductions[i]->value());
    const auto owners = buckets[i].getParameters();
    const bool dense = reduced.layout() == c10::kStrided;
    const auto gradients = dense ? gradients_in(reduced, owners) : std::vector<at::Tensor>{reduced};
    for (std::size_t k = 0; k < owners.size(); ++k) {
      at::Tensor& gradient = owners[k].mutable_grad();
      const bool unused =
          used.defined() && used[std::int64_t(index_of.at(owners[k].unsafeGetTensorImpl()))].item<int>() == 0;
      if (owned && dense) {
        const at::Tensor mine = owned->take(owners[k]);
        gradient = unused ? at::Tensor() : mine;
      } else if (unused)
        gradient.reset();
      else if (gradient.defined())
        gradient.copy_(gradients[k]);
      else
        gradient = gradients[k].clone();
    }
  }
  if (delayed) {
    const ForwardPassScope scope(pass);
    delayed->reduce_nothing(process_group);
  }
  has_learnt = options.static_graph;
  // As with the others, the step that learns says nothing of an order.
  if (!learns) reducer->push_rebuilt_params_for_all_indices();
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::before_forward() {
  State& s = *state_;
  if (!at::GradMode::is_enabled()) return;
  if (s.syncs) check_what_is_trained(s.parts, s.options.find_unused_parameters && !s.options.static_graph);
  if (!s.join && s.has_failed()) s.start_anew();
  s.begin_step(s.join ? s.announced(*this) : s.everyones_step(), true);
  if (s.goes_directly()) return;
  // Asked for when the first gradient comes; without a Join the Reducer divides by the number of ranks.
  s.reducer->set_forward_pass_work_handle(
      s.join ? c10::make_intrusive<DivisorWork>(s.divisor) : c10::intrusive_ptr<DivisorWork>(), false);
}

void GradientReducer::after_forward(const std::vector<at::Tensor*>& outputs) {
  State& s = *state_;
  // A pass without gradients is one rank's own business: what comes next is as if it had not been.
  if (!at::GradMode::is_enabled()) return;
  s.synced_last_time = s.syncs;
  if (!s.syncs) return;
  if (s.syncs_buffers(BufferSync::broadcast_after, BufferSync::average_after)) s.equalize_buffers(true);
  if (s.goes_directly()) {
    s.direct->begin_pass(s.pass);
    return;
  }
  if (s.direct) s.direct->end_pass();
  std::vector<at::Tensor> results;
  results.reserve(outputs.size());
  for (const at::Tensor* output : outputs) results.push_back(*output);
  if (s.owned)
    s.owned->begin_pass(!s.options.static_graph ? s.options.find_unused_parameters ? OwnedGradients::Writes::to_all
                                                                                   : OwnedGradients::Writes::to_used
                        : !s.has_learnt         ? OwnedGradients::Writes::to_all
                                                : OwnedGradients::Writes::to_unused_ones);
  s.left_to_reducer = s.parts.parameters.size();
  s.hook_calls.in_step = 0;
  s.reducer->prepare_for_backward(results);
  pass_on(s.backward_begins, outputs);
}

void GradientReducer::refuse_result(const std::type_info& type) {
  throw std::invalid_argument(
      fmt::format("forward() returns {}, in which no tensors can be found, as find_unused_parameters, static_graph and "
                  "delayed need: return tensors, or aggregates, containers, tuples or optionals of such",
                  c10::demangle(type.name())));
}

bool GradientReducer::wants_outputs() const {
  const State& s = *state_;
  return s.delayed || (s.options.static_graph ? !s.has_learnt : s.options.find_unused_parameters);
}
bool GradientReducer::syncs() const { return state_->syncs; }
void GradientReducer::set_syncs(bool syncs) {
  if (!syncs && state_->options.static_graph)
    throw std::invalid_argument(
        "no_sync() with DistributedDataParallelOptions::static_graph: the Reducer takes a pass without reduction for "
        "one of the graph, and sums come out wrong; leave static_graph out");
  state_->syncs = syncs;
}

void GradientReducer::register_comm_hook(CommHook hook) {
  State& s = *state_;
  if (!hook) throw std::invalid_argument("register_comm_hook of a null function");
  if (s.hook && !s.hook_is_default)
    throw std::invalid_argument(
        "register_comm_hook: there is a hook already: for another one make a new DistributedDataParallel");
  if (s.hook_is_default || s.has_begun) throw std::invalid_argument("register_comm_hook after the first forward()");
  s.hook = std::move(hook);
  s.give_hook_to_reducer();
}

std::int64_t GradientReducer::comm_hook_step() const { return state_->hook_calls.step; }
void GradientReducer::set_comm_hook_step(std::int64_t step) {
  if (step < 0) throw std::invalid_argument(fmt::format("set_comm_hook_step({}): give the number of steps done", step));
  state_->hook_calls.step = step;
}

void GradientReducer::shard_gradients(const GradientOwners& owners) {
  State& s = *state_;
  if (s.hook && !s.hook_is_default)
    throw std::invalid_argument(
        "shard_gradients: there is a communication hook, which reduces whole buckets, or they "
        "are sharded already");
  if (s.hook_is_default || s.has_begun) throw std::invalid_argument("shard_gradients after the first forward()");
  if (s.options.static_graph)
    throw std::invalid_argument(
        "shard_gradients with DistributedDataParallelOptions::static_graph: the Reducer counts on gradients of an "
        "earlier "
        "pass there; leave static_graph out");
  if (s.options.skip_all_reduce_unused_params)
    throw std::invalid_argument(
        "shard_gradients with DistributedDataParallelOptions::skip_all_reduce_unused_params: a bucket that is skipped "
        "is "
        "not given to its owners; leave that option out");
  if (!s.options.gradient_as_bucket_view)
    throw std::invalid_argument("shard_gradients needs DistributedDataParallelOptions::gradient_as_bucket_view");
  s.owned = std::make_shared<OwnedGradients>(s.parts.parameters, s.parts.expect_sparse, owners, s.process_group);
  s.hook = [owned = s.owned](GradBucket& bucket) { return owned->reduce(bucket); };
  s.give_hook_to_reducer();
  s.adopt_buckets();
}

c10::intrusive_ptr<c10d::ProcessGroup> GradientReducer::join_group() const { return state_->process_group; }
void GradientReducer::set_join(Join* join) {
  if (join && state_->options.skip_all_reduce_unused_params)
    throw std::invalid_argument(
        "Join with DistributedDataParallelOptions::skip_all_reduce_unused_params: a rank that has ended does not know "
        "which "
        "buckets the others skip; leave that option out");
  if (join && state_->join)
    throw std::invalid_argument("Join of a DistributedDataParallel that is in another Join: finish() that one first");
  state_->join = join;
}

void GradientReducer::shadow(const JoinStep& step) {
  State& s = *state_;
  s.begin_step(step, false);
  s.synced_last_time = step.syncs;
  if (!step.syncs) return;
  if (s.syncs_buffers(BufferSync::broadcast_after, BufferSync::average_after)) s.equalize_buffers(false);
  s.unfinished = true;  // as where there is a backward pass
  s.shadow_backward();
  s.unfinished = false;
}

bool GradientReducer::has_failed() const { return state_->has_failed(); }
void GradientReducer::start_anew() { state_->start_anew(); }

void GradientReducer::end_join(int root) {
  State& s = *state_;
  s.give_all(root, s.options.broadcast_buffers);
  s.divisor = s.process_group->getSize();
  // A rank that never had a batch knows no graph yet: all learn it together, once more.
  if (s.options.static_graph) s.make_reducer_anew();
}

}  // namespace shoal
