#include <shoal/internal/workers/train/ddp/gradient_reducer.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/ddp/module_check.h>
#include <shoal/internal/workers/train/ddp/reducer_factory.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/trace_span.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

namespace shoal {
namespace {

constexpr std::size_t kBroadcastBytes = 250u << 20;

NamedTensors parameters_of(const torch::nn::Module& module) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> seen;  // tied parameters are one
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      result.emplace_back(item.key(), item.value());
  return result;
}

/// Everything that a replica has to start with: also parameters that are not trained.
NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors result;
  for (const auto& item : module.named_parameters()) result.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) result.emplace_back(item.key(), item.value());
  return result;
}

void broadcast(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> detached;
  detached.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) detached.push_back(tensor.detach());
  c10d::broadcast_coalesced(process_group, detached, kBroadcastBytes, 0);
}

/// While buckets are made. They are born in the heap; and the gradients, which are views of them, are made
/// as tensors that autograd does not know to be views: an optimizer's zero_grad() detaches gradients in
/// place, which libtorch forbids for views that it knows of.
struct BucketScope {
  SharedMemoryScope born_shared;
  at::AutoDispatchBelowADInplaceOrView no_view_tracking;
};

/// The parameters that the Reducer's complaint about an unfinished backward pass lists by their indices.
std::string names_without_gradient(const std::string& complaint, const NamedTensors& parameters) {
  constexpr std::string_view kBefore = "did not receive grad for rank";
  auto at = complaint.rfind(kBefore);
  if (at == std::string::npos || (at = complaint.find(": ", at)) == std::string::npos) return {};
  std::istringstream indices(complaint.substr(at + 2));
  std::vector<std::string> names;
  for (std::size_t index; indices >> index;)
    if (index < parameters.size()) names.push_back(parameters[index].first);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

/// Between the module's results and the loss: its backward pass runs when any of them got a gradient, and gives the
/// others an undefined one, which goes on to the parameters behind them. So the Reducer hears of every parameter.
/// Copies, as torch has them: a result that is a view of several could not be changed in place.
struct PassOn : torch::autograd::Function<PassOn> {
  using Tensors = torch::autograd::variable_list;
  static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList results) {
    context->set_materialize_grads(false);
    Tensors copies;
    for (const at::Tensor& result : results) copies.push_back(result.clone());
    return copies;
  }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors& gradients) { return gradients; }
};

}  // namespace

struct GradientReducer::State {
  void make_reducer_anew();
  void watch_gradients();
  void gradient_came(std::size_t parameter, const at::Tensor& gradient);
  void start_anew();

  DistributedDataParallelOptions options;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  NamedTensors parameters;
  std::vector<at::Tensor> buffers;
  LoggedReducer reducer;
  bool syncs = true;
  bool synced_last_time = true;
  std::vector<unsigned> hooks;  // by parameter
  bool in_backward = false;     // or in what goes before it; also after one of these has ended by an exception
  ~State() {
    for (std::size_t i = 0; i < hooks.size(); ++i) parameters[i].second.remove_hook(hooks[i]);
  }
};

GradientReducer::GradientReducer(const DistributedDataParallelOptions& options, torch::nn::Module& module,
                                 c10::intrusive_ptr<c10d::ProcessGroup> process_group)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = options;
  s.process_group = std::move(process_group);
  s.parameters = parameters_of(module);
  NamedTensors all = state_of(module);
  // The check comes first: a broadcast between tensors of other sizes would say less.
  check_same_on_all_ranks(s.process_group, all);
  if (s.parameters.empty())
    throw std::invalid_argument("DistributedDataParallel of a module without parameters that require gradients");
  if (options.bucket_bytes <= 0 || options.first_bucket_bytes <= 0)
    throw std::invalid_argument(fmt::format("buckets of {} and {} bytes: give positive sizes", options.bucket_bytes,
                                            options.first_bucket_bytes));
  broadcast(s.process_group, tensors_of(all));
  for (const at::Tensor& buffer : module.buffers())
    if (buffer.defined()) s.buffers.push_back(buffer);

  s.make_reducer_anew();
  s.watch_gradients();
}

void GradientReducer::State::make_reducer_anew() {
  ReducerArguments arguments{.parameters = tensors_of(parameters),
                             .bucket_indices = {},
                             .process_group = process_group,
                             .bucket_bytes = options.bucket_bytes,
                             .first_bucket_bytes = options.first_bucket_bytes,
                             .find_unused_parameters = options.find_unused_parameters,
                             .gradient_as_bucket_view = options.gradient_as_bucket_view,
                             .parameter_names = {}};
  for (std::size_t i = 0; i < parameters.size(); ++i) arguments.parameter_names[i] = parameters[i].first;
  // A first guess, in the reverse order of use; after the first backward pass the Reducer knows better.
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      arguments.parameters, {std::size_t(options.first_bucket_bytes), std::size_t(options.bucket_bytes)});
  std::ranges::reverse(buckets);
  arguments.bucket_indices = std::move(buckets);
  BucketScope scope;
  reducer = {};  // its hooks go before the next one's come
  reducer = make_reducer(std::move(arguments));
}

/// The Reducer says neither which gradient is sparse nor, when the next pass begins, whether the last one came to its
/// end.
void GradientReducer::State::watch_gradients() {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    hooks.push_back(
        parameters[i].second.register_hook([this, i](const at::Tensor& gradient) { gradient_came(i, gradient); }));
}

void GradientReducer::State::gradient_came(std::size_t parameter, const at::Tensor& gradient) {
  if (!syncs) return;
  if (!in_backward) {
    in_backward = true;
    const std::uint64_t since = trace::is_on() ? trace::now() : 0;
    // Callbacks of a backward pass run at its end, and only if it has no error. The Reducer's was queued later, waits for
    // all buckets and throws what went wrong with one that a thread reduced: what is queued now comes behind it.
    torch::autograd::Engine::get_default_engine().queue_callback([this, since] {
      torch::autograd::Engine::get_default_engine().queue_callback([this, since] {
        in_backward = false;
        if (since != 0) trace::write(TraceKind::kSpan, since, trace::now(), "backward");
      });
    });
  }
  if (gradient.defined() && gradient.layout() != c10::kStrided)
    throw std::invalid_argument(
        fmt::format("the gradient of {} is {}: DistributedDataParallel reduces strided ones. Make it dense, for "
                    "example by EmbeddingOptions(...).sparse(false)",
                    parameters[parameter].first, c10::str(gradient.layout())));
}

/// After a backward pass that an exception ended. The Reducer waits for gradients that will not come, and has no way
/// back; and another rank may have come further. So all have to be here: a barrier goes with nothing else that a rank
/// could be in.
void GradientReducer::State::start_anew() {
  process_group->barrier()->wait();
  make_reducer_anew();
  in_backward = false;
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::before_forward() {
  State& s = *state_;
  if (!at::GradMode::is_enabled()) return;
  if (s.in_backward) s.start_anew();
  if (s.syncs) s.reducer->prepare_for_forward();
  s.in_backward = true;  // another rank may be starting anew: if a collective says so, this one has to as well
  try {
    BucketScope scope;
    s.reducer->rebuild_buckets();
  } catch (const c10::Error& error) {
    std::string names = names_without_gradient(error.what_without_backtrace(), s.parameters);
    if (names.empty()) throw;
    s.in_backward = false;
    throw Error(
        fmt::format("the last backward pass gave no gradient to: {}. Let all of forward's result go into the loss, "
                    "or set DistributedDataParallelOptions::find_unused_parameters",
                    names));
  }
  if (s.options.broadcast_buffers && s.synced_last_time) broadcast(s.process_group, s.buffers);
  s.in_backward = false;
}

void GradientReducer::after_forward(const std::vector<at::Tensor*>& outputs) {
  State& s = *state_;
  // A pass without gradients is one rank's own business: what comes next is as if it had not been.
  if (!at::GradMode::is_enabled()) return;
  s.synced_last_time = s.syncs;
  if (!s.syncs) return;
  std::vector<at::Tensor> results;
  results.reserve(outputs.size());
  for (const at::Tensor* output : outputs) results.push_back(*output);
  s.reducer->prepare_for_backward(results);
  // What no gradient goes through stays as it is: a parameter that was returned, an index.
  std::vector<at::Tensor*> passed;
  for (at::Tensor* output : outputs)
    if (output->grad_fn()) passed.push_back(output);
  if (passed.empty()) return;
  results.clear();
  for (const at::Tensor* output : passed) results.push_back(*output);
  results = PassOn::apply(at::TensorList(results));  // a vector is not looked into
  for (std::size_t i = 0; i < passed.size(); ++i) *passed[i] = results[i];
}

void GradientReducer::refuse_result(const std::type_info& type) {
  throw std::invalid_argument(
      fmt::format("forward() returns {}, in which no tensors can be found, as find_unused_parameters needs: return "
                  "tensors, or aggregates, containers, tuples or optionals of such",
                  c10::demangle(type.name())));
}

bool GradientReducer::wants_outputs() const { return state_->options.find_unused_parameters; }
bool GradientReducer::syncs() const { return state_->syncs; }
void GradientReducer::set_syncs(bool syncs) { state_->syncs = syncs; }

}  // namespace shoal
