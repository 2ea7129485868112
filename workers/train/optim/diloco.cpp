#include <shoal/workers/train/diloco.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>
#include <shoal/internal/workers/train/ddp/equal_tensors.h>
#include <shoal/internal/workers/train/ddp/module_check.h>
#include <shoal/tensors/shared_memory_scope.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace shoal {
namespace {

void check(const std::vector<at::Tensor>& parameters, const DiLoCoOptions& options) {
  if (parameters.empty()) throw std::invalid_argument("DiLoCo of no parameters: give those of a module, on all ranks");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (!parameter.defined() || parameter.layout() != c10::kStrided || !parameter.is_floating_point())
      throw std::invalid_argument(
          fmt::format("DiLoCo: parameter {} is {}: give dense tensors of floating point numbers", i,
                      parameter.defined() ? parameter.toString() : "an undefined tensor"));
  }
  if (options.sync_every < 1)
    throw std::invalid_argument(
        fmt::format("DiLoCo: an outer step every {} inner steps: give 1 or more", options.sync_every));
  if (options.type && !c10::isFloatingType(*options.type))
    throw std::invalid_argument(
        fmt::format("DiLoCo: differences as {}: give a type of floating point numbers", c10::toString(*options.type)));
}

/// What has to be equal on all ranks.
std::string name_of(const DiLoCoOptions& options) {
  return fmt::format("sync_every {}, differences as {}", options.sync_every,
                     options.type ? c10::toString(*options.type) : "they are");
}

/// Parameters of one type on one device: their differences are one tensor, which one collective adds up.
struct Piece {
  std::vector<std::size_t> parameters = {};  // their numbers
  at::Tensor sent = {};                      // the differences as they go from rank to rank
  std::vector<at::Tensor> views = {};        // of `sent`, in the parameters' shapes
};

/// While the outer optimizer steps: the parameters' own gradients, views of DDP's buckets for example, come back.
class GradientsAside {
 public:
  explicit GradientsAside(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters_) kept_.push_back(std::exchange(parameter.mutable_grad(), {}));
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;
  ~GradientsAside() {
    for (std::size_t i = 0; i < kept_.size(); ++i) parameters_[i].mutable_grad() = std::move(kept_[i]);
  }

 private:
  const std::vector<at::Tensor>& parameters_;
  std::vector<at::Tensor> kept_;
};

}  // namespace

struct DiLoCo::State {
  State(const std::vector<at::Tensor>& given, c10::intrusive_ptr<c10d::ProcessGroup> group,
        const DiLoCoOptions& options)
      : parameters(each_once(given)), process_group(std::move(group)), options(options) {
    NamedTensorList named = named_by_number(parameters);
    named.emplace_back(name_of(options), at::Tensor());
    // Before anything is refused: from here on all ranks refuse the same.
    check_same_on_all_ranks(process_group, named, "DiLoCo");
    check(parameters, options);
    broadcast_tensors(process_group, parameters, 0);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters) start.push_back(parameter.detach().clone());
    make_pieces();
    const ParameterGroups groups{torch::optim::OptimizerParamGroup(parameters)};
    outer =
        options.outer_optimizer
            ? options.outer_optimizer(groups)
            : optimizer_maker<torch::optim::SGD>(torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true))(groups);
    if (!outer) throw std::invalid_argument("DiLoCo: DiLoCoOptions::outer_optimizer has made nothing");
  }

  void make_pieces() {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto piece = std::ranges::find_if(pieces, [&](const Piece& other) {
        return parameters[other.parameters[0]].options().type_equal(parameters[i].options()) &&
               parameters[other.parameters[0]].device() == parameters[i].device();
      });
      if (piece == pieces.end()) piece = pieces.emplace(pieces.end());
      piece->parameters.push_back(i);
    }
    const SharedMemoryScope born_shared;  // so that ranks of a host add them up where they are
    for (Piece& piece : pieces) {
      std::int64_t elements = 0;
      for (const std::size_t i : piece.parameters) elements += parameters[i].numel();
      const at::Tensor& like = start[piece.parameters[0]];
      piece.sent = at::empty({elements}, like.options().dtype(options.type.value_or(like.scalar_type())));
      std::int64_t at = 0;
      for (const std::size_t i : piece.parameters) {
        piece.views.push_back(piece.sent.narrow(0, at, parameters[i].numel()).view(parameters[i].sizes()));
        at += parameters[i].numel();
      }
    }
  }

  /// The mean of all ranks' differences, in the pieces. The parameters stay as they are.
  void average_differences() {
    const int ranks = process_group->getSize();
    std::vector<c10::intrusive_ptr<c10d::Work>> sums;
    for (Piece& piece : pieces) {
      for (std::size_t k = 0; k < piece.parameters.size(); ++k) {
        const std::size_t i = piece.parameters[k];
        piece.views[k].copy_(at::sub(start[i], parameters[i].detach()).div_(ranks));
      }
      std::vector<at::Tensor> sum{piece.sent};
      sums.push_back(process_group->allreduce(sum));
    }
    for (const auto& sum : sums) sum->wait();
  }

  void outer_step() {
    const at::NoGradGuard no_grad;
    average_differences();
    {
      const GradientsAside aside(parameters);
      for (const Piece& piece : pieces)
        for (std::size_t k = 0; k < piece.parameters.size(); ++k) {
          const at::Tensor& parameter = parameters[piece.parameters[k]];
          parameter.detach().copy_(start[piece.parameters[k]]);
          parameter.mutable_grad() = piece.views[k].to(parameter.scalar_type());
        }
      outer->step();
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) start[i].copy_(parameters[i].detach());
    inner_steps = 0;
  }

  std::vector<at::Tensor> parameters;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  DiLoCoOptions options;
  std::vector<at::Tensor> start;
  std::vector<Piece> pieces;
  std::unique_ptr<torch::optim::Optimizer> outer;
  std::int64_t inner_steps = 0;
};

DiLoCo::DiLoCo(const std::vector<at::Tensor>& parameters, c10::intrusive_ptr<c10d::ProcessGroup> process_group,
               const DiLoCoOptions& options)
    : state_(std::make_unique<State>(parameters, std::move(process_group), options)) {}
DiLoCo::DiLoCo(DiLoCo&&) noexcept = default;
DiLoCo& DiLoCo::operator=(DiLoCo&&) noexcept = default;
DiLoCo::~DiLoCo() = default;

bool DiLoCo::step() {
  if (++state_->inner_steps < state_->options.sync_every) return false;
  state_->outer_step();
  return true;
}

void DiLoCo::outer_step() { state_->outer_step(); }
torch::optim::Optimizer& DiLoCo::outer() { return *state_->outer; }
const std::vector<at::Tensor>& DiLoCo::parameters() const { return state_->parameters; }
std::int64_t DiLoCo::inner_steps() const { return state_->inner_steps; }
void DiLoCo::set_inner_steps(std::int64_t steps) {
  if (steps < 0)
    throw std::invalid_argument(
        fmt::format("DiLoCo: set_inner_steps({}): give the inner steps since, 0 or more", steps));
  state_->inner_steps = steps;
}
const std::vector<at::Tensor>& DiLoCo::start() const { return state_->start; }

DiLoCoState DiLoCo::state_dict() {
  return {.inner_steps = state_->inner_steps, .start = state_->start, .outer = optimizer_state(*state_->outer)};
}

void DiLoCo::load_state_dict(const DiLoCoState& state) {
  State& s = *state_;
  bool fits = state.inner_steps >= 0 && state.start.size() == s.start.size();
  for (std::size_t i = 0; fits && i < s.start.size(); ++i)
    fits = state.start[i].defined() && state.start[i].sizes() == s.start[i].sizes() &&
           state.start[i].scalar_type() == s.start[i].scalar_type();
  if (!fits)
    throw std::invalid_argument(
        fmt::format("DiLoCo::load_state_dict: a state of {} inner steps and {} parameters, or of parameters of other "
                    "shapes or types: this one has {} parameters",
                    state.inner_steps, state.start.size(), s.start.size()));
  OptimizerState own;
  own.reserve(state.outer.size());
  for (const at::Tensor& tensor : state.outer) own.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
  use_optimizer_state(*s.outer, own);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < s.start.size(); ++i) s.start[i].copy_(state.start[i]);
  s.inner_steps = state.inner_steps;
}

}  // namespace shoal
