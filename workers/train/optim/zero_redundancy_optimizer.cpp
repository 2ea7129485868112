#include <shoal/workers/train/zero_redundancy_optimizer.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/ddp/module_check.h>
#include <shoal/internal/workers/train/optim/ended_ranks.h>
#include <shoal/internal/workers/train/optim/option_text.h>
#include <shoal/internal/workers/train/optim/original_of.h>
#include <shoal/internal/workers/train/optim/partition.h>
#include <shoal/internal/workers/train/optim/sent_state.h>
#include <shoal/ipc/error.h>
#include <shoal/tensors/optimizer.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

namespace shoal {
namespace {

constexpr std::size_t kBroadcastBytes = 250u << 20;

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

/// The same groups, each parameter where it comes first: one with two owners would be stepped on one rank, and be overwritten
/// by the other's.
ParameterGroups without_repetitions(const ParameterGroups& groups) {
  ParameterGroups once;
  once.reserve(groups.size());
  SeenTensors seen;
  for (const OptimizerParamGroup& group : groups) {
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : group.params())
      if (seen.is_new(parameter)) parameters.push_back(parameter);
    once.emplace_back(std::move(parameters), group.has_options() ? group.options().clone() : nullptr);
  }
  return once;
}

void check_parameters(const std::vector<at::Tensor>& parameters) {
  if (parameters.empty())
    throw std::invalid_argument("ZeroRedundancyOptimizer of no parameters: give those of a module, on all ranks");
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].defined() || parameters[i].layout() != c10::kStrided)
      throw std::invalid_argument(
          fmt::format("ZeroRedundancyOptimizer: parameter {} is {}: give dense tensors", i,
                      parameters[i].defined() ? parameters[i].toString() : "an undefined tensor"));
}

/// The type in which a gradient's norm is computed: squares of half types overflow, and real types hold no complex ones.
c10::ScalarType type_of_norm(const at::Tensor& gradient) {
  return gradient.is_complex() ? c10::ScalarType::ComplexDouble : c10::ScalarType::Double;
}

/// Of these parameters' gradients, so that ranks' add up: the largest one, or the sum of powers.
double sum_of_norms(const std::vector<at::Tensor>& parameters, double norm_type) {
  double sum = 0;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& given = parameter.grad();
    if (!given.defined()) continue;
    const at::Tensor values = given.is_sparse() ? given.coalesce().values() : given;
    const double norm =
        at::linalg_vector_norm(values.detach(), norm_type, std::nullopt, false, type_of_norm(values)).item<double>();
    if (!std::isinf(norm_type))
      sum += std::pow(norm, norm_type);
    else if (std::isnan(norm) || norm > sum)
      sum = norm;
  }
  return sum;
}

/// The same groups with those parameters alone that a rank has.
ParameterGroups share_of(const ParameterGroups& groups, const std::vector<int>& owners, int rank) {
  ParameterGroups share;
  share.reserve(groups.size());
  std::size_t index = 0;
  for (const OptimizerParamGroup& group : groups) {
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : group.params())
      if (owners[index++] == rank) parameters.push_back(parameter);
    share.emplace_back(std::move(parameters), group.has_options() ? group.options().clone() : nullptr);
  }
  return share;
}

}  // namespace

struct ZeroRedundancyOptimizer::State {
  State(const ParameterGroups& given, MakeOptimizer make, c10::intrusive_ptr<c10d::ProcessGroup> process_group)
      : groups(without_repetitions(given)), make(std::move(make)), process_group(std::move(process_group)) {
    for (const OptimizerParamGroup& group : groups)
      parameters.insert(parameters.end(), group.params().begin(), group.params().end());
    // Before anything is refused: from here on all ranks refuse the same.
    check_same_on_all_ranks(this->process_group, named_by_number(parameters), "ZeroRedundancyOptimizer");
    check_parameters(parameters);
    shares.resize(std::size_t(this->process_group->getSize()));
    elements.resize(shares.size());
    distribute(parameters);
    make_local();
  }

  /// Gives each of these, the last ones of `parameters`, to a rank.
  void distribute(const std::vector<at::Tensor>& added) {
    std::vector<std::int64_t> sizes;
    sizes.reserve(added.size());
    for (const at::Tensor& parameter : added) sizes.push_back(parameter.numel());
    const std::vector<int> theirs = partition_by_size(sizes, int(shares.size()), elements);
    for (std::size_t i = 0; i < added.size(); ++i) {
      owners.push_back(theirs[i]);
      originals.push_back(original_of(added[i]));
      shares[std::size_t(theirs[i])].push_back(added[i]);
      elements[std::size_t(theirs[i])] += sizes[i];
    }
  }

  /// On all ranks, or on none: a rank without its part would leave the others in step().
  void make_local() {
    std::vector<std::string> options;
    std::exception_ptr refusal;
    try {
      local = make(share_of(groups, owners, process_group->getRank()));
      options = option_lines(*local);
    } catch (const std::exception&) {
      refusal = std::current_exception();
    }
    check_same_lines(process_group, std::move(options), "ZeroRedundancyOptimizer", refusal);
  }

  /// The local step, and each rank's parameters from that rank.
  void step() {
    local->step();
    const at::NoGradGuard no_grad;
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      if (shares[rank].empty()) continue;
      std::vector<at::Tensor> values;
      values.reserve(shares[rank].size());
      for (const at::Tensor& parameter : shares[rank]) values.push_back(parameter.detach());
      c10d::broadcast_coalesced(process_group, values, kBroadcastBytes, int(rank));
    }
  }

  double clip(double max_norm, double norm_type);

  /// Whose gradient DistributedDataParallel has: of a float copy the parameter that it is a copy of.
  const at::Tensor& in_module(std::size_t i) const { return originals[i].defined() ? originals[i] : parameters[i]; }
  CopyList copies() const {
    CopyList list;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (originals[i].defined()) list.emplace_back(parameters[i], originals[i]);
    return list;
  }
  static void check_syncs(const JoinStep& step, const char* call) {
    if (!step.syncs)
      throw std::invalid_argument(fmt::format(
          "ZeroRedundancyOptimizer::{}() of a Join behind a pass in no_sync(): ranks without a batch do not "
          "come to it; call it behind the pass that reduces",
          call));
  }

  const std::vector<at::Tensor>& own_share() const { return shares[std::size_t(process_group->getRank())]; }

  void tell_ended(const JoinStep& step, const OptimizerCall& call) {
    if (!step.ended.empty()) tell_call(process_group, step, call, *local, shares, may_be_sharded);
  }

  /// Options change, by a learning rate's schedule for example: the local part's are the ones that hold.
  void copy_options(Optimizer& from, Optimizer& to) const {
    for (std::size_t i = 0; i < groups.size(); ++i)
      to.param_groups()[i].set_options(from.param_groups()[i].options().clone());
  }

  ParameterGroups groups;
  MakeOptimizer make;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  std::vector<at::Tensor> parameters;  // of all groups
  std::vector<int> owners;             // of `parameters`
  std::vector<at::Tensor> originals;   // of `parameters` that are FloatMasters' copies; undefined for others
  std::vector<std::vector<at::Tensor>> shares;
  std::vector<std::int64_t> elements;
  std::unique_ptr<Optimizer> local;
  Join* join = nullptr;
  bool was_without_batch = false;       // in this Join
  mutable bool may_be_sharded = false;  // somebody has asked whose parameters are whose
};

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(const std::vector<at::Tensor>& parameters, MakeOptimizer make,
                                                 c10::intrusive_ptr<c10d::ProcessGroup> process_group)
    : ZeroRedundancyOptimizer(ParameterGroups{OptimizerParamGroup(parameters)}, std::move(make),
                              std::move(process_group)) {}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(const ParameterGroups& groups, MakeOptimizer make,
                                                 c10::intrusive_ptr<c10d::ProcessGroup> process_group)
    : state_(std::make_unique<State>(groups, std::move(make), std::move(process_group))) {}

ZeroRedundancyOptimizer::~ZeroRedundancyOptimizer() = default;

void ZeroRedundancyOptimizer::step() {
  if (state_->join) {
    const JoinStep& step = state_->join->announce(*this, true);
    State::check_syncs(step, "step");
    state_->tell_ended(step, {});
  }
  state_->step();
}

at::Tensor ZeroRedundancyOptimizer::step(const std::function<at::Tensor()>& closure) {
  if (!closure)
    throw std::invalid_argument("ZeroRedundancyOptimizer::step of a null function: call step() without an argument");
  at::Tensor loss;
  {
    const at::AutoGradMode enabled(true);
    loss = closure();
  }
  step();
  return loss;
}

void ZeroRedundancyOptimizer::add_param_group(const OptimizerParamGroup& group) {
  State& s = *state_;
  if (s.join)
    throw std::invalid_argument(
        "ZeroRedundancyOptimizer::add_param_group in a Join, where ranks without a batch do not learn of it: add the "
        "group before or behind the Join");
  OptimizerParamGroup once = without_repetitions({group}).front();
  const std::vector<at::Tensor>& added = once.params();
  check_same_on_all_ranks(s.process_group, named_by_number(added), "group for a ZeroRedundancyOptimizer");
  check_parameters(added);
  const std::size_t before = s.local->param_groups().size();
  std::vector<std::string> options;
  std::exception_ptr refusal;
  try {
    for (std::size_t i = 0; i < added.size(); ++i) {
      const at::Tensor original = original_of(added[i]), &its = original.defined() ? original : added[i];
      for (std::size_t old = 0; old < s.parameters.size(); ++old)
        if (s.in_module(old).is_same(its))
          throw std::invalid_argument(fmt::format(
              "ZeroRedundancyOptimizer::add_param_group: parameter {} of the group is in the optimizer already", i));
      if (!added[i].is_leaf())
        throw std::invalid_argument(fmt::format(
            "ZeroRedundancyOptimizer::add_param_group: tensor {} of the group is no parameter, but a result "
            "of others: give leaves",
            i));
    }
    if (dynamic_cast<torch::optim::Adagrad*>(s.local.get()))
      throw std::invalid_argument(
          "ZeroRedundancyOptimizer::add_param_group of Adagrad: libtorch's has state only for parameters that it was "
          "made with; make a new optimizer of all parameters");
    // First without parameters: nothing has to be taken back from the parts if a rank refuses.
    s.local->add_param_group(
        OptimizerParamGroup(std::vector<at::Tensor>(), once.has_options() ? once.options().clone() : nullptr));
    options = option_lines(*s.local);
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  try {
    check_same_lines(s.process_group, std::move(options), "ZeroRedundancyOptimizer", refusal);
  } catch (...) {
    while (s.local->param_groups().size() > before) s.local->param_groups().pop_back();
    throw;
  }
  s.parameters.insert(s.parameters.end(), added.begin(), added.end());
  const std::size_t first = s.owners.size();
  s.distribute(added);
  for (std::size_t i = 0; i < added.size(); ++i)
    if (s.owners[first + i] == s.process_group->getRank()) s.local->param_groups().back().params().push_back(added[i]);
  s.groups.push_back(std::move(once));
}

void ZeroRedundancyOptimizer::zero_grad(bool set_to_none) {
  for (at::Tensor& parameter : state_->parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    gradient.detach_();
    if (set_to_none)
      gradient.reset();
    else
      gradient.zero_();
  }
}

Optimizer& ZeroRedundancyOptimizer::local() { return *state_->local; }
const std::vector<std::int64_t>& ZeroRedundancyOptimizer::elements() const { return state_->elements; }

GradientOwners ZeroRedundancyOptimizer::owners() const {
  GradientOwners owners;
  owners.reserve(state_->parameters.size());
  for (std::size_t i = 0; i < state_->parameters.size(); ++i)
    owners.emplace_back(state_->in_module(i), state_->owners[i]);
  state_->may_be_sharded = true;
  return owners;
}

double ZeroRedundancyOptimizer::State::clip(double max_norm, double norm_type) {
  const at::NoGradGuard no_grad;
  const bool largest = std::isinf(norm_type);
  double own = 0;
  std::exception_ptr failure;
  try {
    own = sum_of_norms(shares[std::size_t(process_group->getRank())], norm_type);
  } catch (...) {
    failure = std::current_exception();
  }
  // The second number says whether any rank has failed: the others wait for it here.
  const at::Tensor sums = at::empty({2}, at::kDouble);
  auto* both = sums.mutable_data_ptr<double>();
  both[0] = own;
  both[1] = failure ? 1 : 0;
  std::vector<at::Tensor> all{sums};
  c10d::AllreduceOptions options;
  options.reduceOp = largest ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
  process_group->allreduce(all, options)->wait();
  if (failure) std::rethrow_exception(failure);
  if (both[1] != 0)
    throw Error(
        "clip_grad_norm_: another rank cannot compute its gradients' norm, and its error says why: nothing was "
        "clipped");
  const double total = largest ? both[0] : std::pow(both[0], 1 / norm_type);
  const double factor = max_norm / (total + 1e-6);  // torch's
  if (factor < 1 || std::isnan(factor))
    for (const at::Tensor& parameter : parameters)
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  return total;
}

double ZeroRedundancyOptimizer::clip_grad_norm_(double max_norm, double norm_type) {
  State& s = *state_;
  if (!(max_norm > 0) || !(norm_type > 0))
    throw std::invalid_argument(
        fmt::format("clip_grad_norm_ to {} by the norm of type {}: give positive numbers", max_norm, norm_type));
  if (s.join) {
    const JoinStep& step = s.join->in_turn(*this);
    State::check_syncs(step, "clip_grad_norm_");
    s.tell_ended(step, {.clips = true, .max_norm = max_norm, .norm_type = norm_type});
  }
  return s.clip(max_norm, norm_type);
}

std::size_t ZeroRedundancyOptimizer::state_bytes() { return bytes_of_state(*state_->local); }

std::unique_ptr<Optimizer> ZeroRedundancyOptimizer::make_whole() const {
  auto whole = state_->make(state_->groups);
  state_->copy_options(*state_->local, *whole);
  return whole;
}

std::unique_ptr<Optimizer> ZeroRedundancyOptimizer::consolidate(int root) {
  State& s = *state_;
  const int ranks = s.process_group->getSize(), own = s.process_group->getRank();
  if (root < 0 || root >= ranks)
    throw std::invalid_argument(
        fmt::format("ZeroRedundancyOptimizer::consolidate to rank {}: give one from 0 to {}", root, ranks - 1));
  std::unique_ptr<Optimizer> whole;
  std::vector<std::unique_ptr<Optimizer>> parts;
  std::exception_ptr failure;
  if (own == root) try {
      whole = make_whole();
      for (int rank = 0; rank < ranks; ++rank) {
        parts.push_back(s.make(share_of(s.groups, s.owners, rank)));
        s.copy_options(*s.local, *parts.back());
      }
    } catch (...) {
      failure = std::current_exception();
    }
  // Before anybody sends: what nobody takes would be taken for the next call's.
  const at::Tensor failed = at::full({1}, failure ? 1 : 0, at::kLong);
  std::vector<at::Tensor> said{failed};
  s.process_group->broadcast(said, {.rootRank = root})->wait();
  if (failure) std::rethrow_exception(failure);
  if (failed.item<std::int64_t>() != 0)
    throw Error(fmt::format(
        "ZeroRedundancyOptimizer::consolidate: rank {} cannot make its optimizer, and its error says why", root));
  if (own != root) {
    send_state(*s.process_group, *s.local, root);
    return nullptr;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    Optimizer& part = *parts[std::size_t(rank)];
    if (rank == own)
      copy_state(*s.local, part);
    else
      receive_state(*s.process_group, part, rank);
    for (auto& [parameter, entry] : part.state()) whole->state()[parameter] = std::move(entry);
  }
  return whole;
}

void ZeroRedundancyOptimizer::load_state(Optimizer& whole) {
  State& s = *state_;
  std::vector<at::Tensor> theirs;
  for (const OptimizerParamGroup& group : whole.param_groups())
    theirs.insert(theirs.end(), group.params().begin(), group.params().end());
  bool same = whole.param_groups().size() == s.groups.size() && theirs.size() == s.parameters.size();
  for (std::size_t i = 0; same && i < theirs.size(); ++i) same = theirs[i].is_same(s.parameters[i]);
  if (!same)
    throw std::invalid_argument(
        "ZeroRedundancyOptimizer::load_state: an optimizer of other parameters: make it by make_whole()");
  s.copy_options(whole, *s.local);
  for (const at::Tensor& parameter : s.shares[std::size_t(s.process_group->getRank())]) {
    const auto found = whole.state().find(parameter.unsafeGetTensorImpl());
    if (found != whole.state().end())
      s.local->state()[parameter.unsafeGetTensorImpl()] = found->second->clone();
    else
      s.local->state().erase(parameter.unsafeGetTensorImpl());
  }
}

c10::intrusive_ptr<c10d::ProcessGroup> ZeroRedundancyOptimizer::join_group() const { return state_->process_group; }
void ZeroRedundancyOptimizer::set_join(Join* join) {
  if (join && state_->join)
    throw std::invalid_argument("Join of a ZeroRedundancyOptimizer that is in another Join: finish() that one first");
  state_->join = join;
  state_->was_without_batch = false;
}
/// DistributedDataParallel's shadow has left the module's gradients here; what the others have made of theirs comes
/// from the first of them. A step without reduction is one of an accumulation, and the others' optimizers do not step.
void ZeroRedundancyOptimizer::shadow(const JoinStep& step) {
  if (!step.syncs) return;
  State& s = *state_;
  s.was_without_batch = true;
  const CopyList copies = s.copies();
  const int own = s.process_group->getRank();
  for (std::size_t i = 0; i < s.parameters.size(); ++i)
    if (s.owners[i] == own && s.originals[i].defined()) take_gradient(s.parameters[i], s.originals[i]);
  for (;;) {
    const OptimizerCall call = hear_call(s.process_group, step, *s.local, s.own_share());
    if (!call.clips) break;
    s.clip(call.max_norm, call.norm_type);
  }
  s.step();
  for (const auto& [copy, original] : copies) give_value(copy, original);
}
/// The module's parameters become root's, and so have their float copies to.
void ZeroRedundancyOptimizer::end_join(int root) {
  equalize_copies(state_->process_group, state_->copies(), root, state_->was_without_batch);
}

}  // namespace shoal
