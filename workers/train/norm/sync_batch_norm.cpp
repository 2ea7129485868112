#include <shoal/workers/train/sync_batch_norm.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/train/norm/joint_norm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shoal {

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options) : options(options) {
  if (options.num_features <= 0)
    throw std::invalid_argument(fmt::format("SyncBatchNorm of {} features", options.num_features));
  SyncBatchNormImpl::reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options, const SyncBatchNormTensors& tensors)
    : options(options) {
  take(tensors);
}

void SyncBatchNormImpl::reset() {
  const std::int64_t features = options.num_features;
  SyncBatchNormTensors fresh;
  if (options.affine) {
    fresh.weight = at::ones({features});
    fresh.bias = at::zeros({features});
  }
  if (options.track_running_stats) {
    fresh.running_mean = at::zeros({features});
    fresh.running_var = at::ones({features});
    fresh.num_batches_tracked = at::zeros({}, at::kLong);
  }
  take(fresh);
}

void SyncBatchNormImpl::take(const SyncBatchNormTensors& tensors) {
  weight = register_parameter("weight", tensors.weight, options.affine);
  bias = register_parameter("bias", tensors.bias, options.affine);
  running_mean = register_buffer("running_mean", tensors.running_mean);
  running_var = register_buffer("running_var", tensors.running_var);
  num_batches_tracked = register_buffer("num_batches_tracked", tensors.num_batches_tracked);
}

void SyncBatchNormImpl::set_group(c10::intrusive_ptr<c10d::ProcessGroup> process_group) {
  process_group_ = std::move(process_group);
}

namespace {

/// Half types are rounded once, as those of one process's batch norm.
void follow(const at::Tensor& running, const at::Tensor& now, double factor) {
  if (at::isReducedFloatingType(running.scalar_type()))
    running.copy_(running.to(now.scalar_type()).mul_(1 - factor).add_(now, factor));
  else
    running.mul_(1 - factor).add_(now.to(running.scalar_type()), factor);
}

}  // namespace

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.num_features)
    throw std::invalid_argument(fmt::format("SyncBatchNorm of {} features got an input of [{}]", options.num_features,
                                            fmt::join(input.sizes().vec(), ", ")));
  double factor = options.momentum.value_or(0.0);
  const bool tracks = is_training() && options.track_running_stats;
  if (tracks) {
    num_batches_tracked.add_(1);
    if (!options.momentum) factor = 1.0 / double(num_batches_tracked.item<std::int64_t>());
  }
  const bool from_batch = is_training() || !options.track_running_stats;
  // Without running values evaluation, too, norms by the batch: by this rank's alone, which may evaluate alone.
  if (!process_group_ || !is_training())
    return at::batch_norm(input, weight, bias, running_mean, running_var, from_batch, factor, options.eps, false);
  const JointStatistics joint = joint_statistics(process_group_, input);
  if (joint.count <= 1)
    throw std::invalid_argument("SyncBatchNorm: all ranks' batches together have one value for each channel, or none");
  if (tracks) {
    const at::NoGradGuard no_grad;
    follow(running_mean, joint.mean, factor);
    follow(running_var, joint.variance * (joint.count / (joint.count - 1)), factor);
  }
  return joint_norm(process_group_, input, joint, weight, bias, options.eps);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("shoal::SyncBatchNorm({}, eps={}, momentum={}, affine={}, track_running_stats={})",
                        options.num_features, options.eps,
                        options.momentum ? fmt::format("{}", *options.momentum) : "None", options.affine,
                        options.track_running_stats);
}

namespace {

/// A SyncBatchNorm with the tensors of a batch norm; null if the module is none.
template <class BatchNorm>
std::shared_ptr<SyncBatchNormImpl> synchronized(const torch::nn::Module& module) {
  const auto* norm = module.as<BatchNorm>();
  // A class derived from one has more than a batch norm.
  if (!norm || typeid(module) != typeid(typename BatchNorm::ContainedType)) return nullptr;
  const auto& from = norm->options;
  // Asked before, since to become another module's parameter makes a tensor one that is trained.
  const bool trains_weight = norm->weight.defined() && norm->weight.requires_grad();
  const bool trains_bias = norm->bias.defined() && norm->bias.requires_grad();
  auto sync =
      std::make_shared<SyncBatchNormImpl>(SyncBatchNormOptions{.num_features = from.num_features(),
                                                               .eps = from.eps(),
                                                               .momentum = from.momentum(),
                                                               .affine = from.affine(),
                                                               .track_running_stats = from.track_running_stats()},
                                          SyncBatchNormTensors{.weight = norm->weight,
                                                               .bias = norm->bias,
                                                               .running_mean = norm->running_mean,
                                                               .running_var = norm->running_var,
                                                               .num_batches_tracked = norm->num_batches_tracked});
  if (sync->weight.defined()) sync->weight.set_requires_grad(trains_weight);
  if (sync->bias.defined()) sync->bias.set_requires_grad(trains_bias);
  sync->train(norm->is_training());
  return sync;
}

std::shared_ptr<SyncBatchNormImpl> synchronized_of_any(const torch::nn::Module& module) {
  if (auto sync = synchronized<torch::nn::BatchNorm1d>(module)) return sync;
  if (auto sync = synchronized<torch::nn::BatchNorm2d>(module)) return sync;
  return synchronized<torch::nn::BatchNorm3d>(module);
}

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() || module.as<torch::nn::BatchNorm2d>() ||
         module.as<torch::nn::BatchNorm3d>();
}

/// Calls visit(module, put) for what a container holds; put(other) has it hold another one. It has its modules twice:
/// in its own order, which forward() and iteration follow, and by name as its children.
template <class Visit>
void each_entry(torch::nn::Module& module, Visit&& visit) {
  using Sync = std::shared_ptr<SyncBatchNormImpl>;
  if (auto* sequential = module.as<torch::nn::Sequential>())
    for (torch::nn::AnyModule& entry : *sequential)
      visit(*entry.ptr(), [&](const Sync& sync) { entry = torch::nn::AnyModule(sync); });
  if (auto* list = module.as<torch::nn::ModuleList>())
    for (std::shared_ptr<torch::nn::Module>& entry : *list) visit(*entry, [&](const Sync& sync) { entry = sync; });
  if (auto* dict = module.as<torch::nn::ModuleDict>())
    for (auto& item : *dict) visit(*item.value(), [&](const Sync& sync) { item.value() = sync; });
}

bool is_plain_batch_norm(const torch::nn::Module& module) {
  return typeid(module) == typeid(torch::nn::BatchNorm1dImpl) || typeid(module) == typeid(torch::nn::BatchNorm2dImpl) ||
         typeid(module) == typeid(torch::nn::BatchNorm3dImpl);
}

bool holds(torch::nn::Module& module, const torch::nn::Module& child) {
  bool found = false;
  each_entry(module, [&](const torch::nn::Module& entry, const auto&) { found = found || &entry == &child; });
  return found;
}

/// The batch norms that are members of a class, by name.
void find_members(torch::nn::Module& module, const std::string& path, std::vector<std::string>& names) {
  if (is_batch_norm(module) && path.empty()) names.emplace_back("the module itself");
  for (const auto& child : module.named_children()) {
    const std::string name = path.empty() ? child.key() : path + "." + child.key();
    if (is_batch_norm(*child.value()) && !(is_plain_batch_norm(*child.value()) && holds(module, *child.value())))
      names.push_back(name);
    find_members(*child.value(), name, names);
  }
}

class Conversion {
 public:
  explicit Conversion(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) : process_group_(process_group) {}

  void convert(torch::nn::Module& module) {
    if (auto* sync = module.as<SyncBatchNorm>()) sync->set_group(process_group_);
    each_entry(module, [&](const torch::nn::Module& entry, const auto& put) {
      if (auto sync = in_place_of(entry)) put(sync);
    });
    for (const auto& child : module.named_children()) {
      if (auto sync = in_place_of(*child.value()))
        module.replace_module(child.key(), sync);
      else
        convert(*child.value());
    }
  }

 private:
  /// The same one wherever a batch norm is held; null if the module is none.
  std::shared_ptr<SyncBatchNormImpl> in_place_of(const torch::nn::Module& module) {
    if (!is_plain_batch_norm(module)) return nullptr;
    std::shared_ptr<SyncBatchNormImpl>& sync = made_[&module];
    if (!sync) sync = synchronized_of_any(module);
    sync->set_group(process_group_);
    return sync;
  }

  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group_;
  std::unordered_map<const torch::nn::Module*, std::shared_ptr<SyncBatchNormImpl>> made_;
};

}  // namespace

void convert_sync_batch_norm(torch::nn::Module& root, const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  std::vector<std::string> members;
  find_members(root, "", members);
  if (!members.empty())
    throw std::invalid_argument(
        fmt::format("convert_sync_batch_norm: {} cannot become another type, as it is a member of a class and in no "
                    "Sequential, ModuleList or ModuleDict: declare it as shoal::SyncBatchNorm, which norms alone until "
                    "this call",
                    fmt::join(members, ", ")));
  Conversion(process_group).convert(root);
}

}  // namespace shoal
