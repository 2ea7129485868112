#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <shoal/workers/train/gradient_reducer.h>
#include <shoal/workers/train/module_check.h>
#include <shoal/workers/train/reducer_factory.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
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
  DistributedDataParallelOptions options;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  NamedTensors parameters;
  std::vector<at::Tensor> buffers;
  LoggedReducer reducer;
  bool syncs = true;
  bool synced_last_time = true;
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

  ReducerArguments arguments{.parameters = tensors_of(s.parameters),
                             .bucket_indices = {},
                             .process_group = s.process_group,
                             .bucket_bytes = options.bucket_bytes,
                             .first_bucket_bytes = options.first_bucket_bytes,
                             .find_unused_parameters = options.find_unused_parameters,
                             .gradient_as_bucket_view = options.gradient_as_bucket_view,
                             .parameter_names = {}};
  for (std::size_t i = 0; i < s.parameters.size(); ++i) arguments.parameter_names[i] = s.parameters[i].first;
  // A first guess, in the reverse order of use; after the first backward pass the Reducer knows better.
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      arguments.parameters, {std::size_t(options.first_bucket_bytes), std::size_t(options.bucket_bytes)});
  std::reverse(buckets.begin(), buckets.end());
  arguments.bucket_indices = std::move(buckets);
  BucketScope scope;
  s.reducer = make_reducer(std::move(arguments));
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::before_forward() {
  State& s = *state_;
  if (!at::GradMode::is_enabled()) return;
  if (s.syncs) s.reducer->prepare_for_forward();
  try {
    BucketScope scope;
    s.reducer->rebuild_buckets();
  } catch (const c10::Error& error) {
    std::string names = names_without_gradient(error.what_without_backtrace(), s.parameters);
    if (names.empty()) throw;
    throw Error(
        fmt::format("the last backward pass gave no gradient to: {}. Let all of forward's result go into the loss, "
                    "or set DistributedDataParallelOptions::find_unused_parameters",
                    names));
  }
  if (s.options.broadcast_buffers && s.synced_last_time) broadcast(s.process_group, s.buffers);
}

void GradientReducer::after_forward(const std::vector<at::Tensor*>& outputs) {
  State& s = *state_;
  // A pass without gradients is one rank's own business: what comes next is as if it had not been.
  if (!at::GradMode::is_enabled()) return;
  s.synced_last_time = s.syncs;
  if (!s.syncs) return;
  std::vector<at::Tensor> results;
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
