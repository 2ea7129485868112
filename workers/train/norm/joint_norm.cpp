#include <shoal/internal/workers/train/norm/joint_norm.h>

#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace shoal {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// All dimensions but the channels'.
std::vector<std::int64_t> reduced_dimensions(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

/// A value for each channel, so that it goes with the input.
at::Tensor beside(const at::Tensor& channels, const at::Tensor& input) {
  std::vector<std::int64_t> sizes(std::size_t(input.dim()), 1);
  sizes[1] = channels.size(0);
  return channels.view(sizes);
}

/// In the statistics' type: of a half input it is float, and what is made of it is rounded in the end alone. A mean
/// that is rounded before it is subtracted moves a whole channel.
at::Tensor normed(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& inverse) {
  return (input - beside(mean, input)).mul_(beside(inverse, input));
}

std::vector<at::Tensor> gather(const Group& process_group, const at::Tensor& own) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < process_group->getSize(); ++rank) all[0].push_back(at::empty_like(own));
  std::vector<at::Tensor> input{own};
  process_group->allgather(all, input)->wait();
  return all[0];
}

/// Backward of the norm: what each rank's gradients say about mean and variance goes to all ranks.
struct JointNorm : torch::autograd::Function<JointNorm> {
  using Tensors = torch::autograd::variable_list;

  /// Weight and bias: libtorch takes an undefined tensor for one of an unknown device, and throws.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            const at::Tensor& mean, const at::Tensor& inverse, double count,
                            const Group& process_group) {
    context->save_for_backward({input, weight.value_or(at::Tensor()), mean, inverse});
    context->saved_data["count"] = count;
    context->saved_data["group"] = c10::IValue::make_capsule(process_group);
    const at::Tensor result = normed(input, mean, inverse);
    if (weight) result.mul_(beside(*weight, input)).add_(beside(*bias, input));
    return result.to(input.scalar_type());
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    if (at::GradMode::is_enabled())
      throw std::logic_error(
          "SyncBatchNorm: gradients of gradients (create_graph) are not made: other ranks' share in the statistics "
          "would be "
          "missing in them");
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3];
    const auto group = c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(context->saved_data["group"].toCapsule());
    const at::Tensor gradient = gradients[0].to(mean.scalar_type());
    const auto dimensions = reduced_dimensions(input);
    const at::Tensor normal = normed(input, mean, inverse);
    // In double, added in the order of ranks: the same bits on all ranks, and next to none lost.
    const at::Tensor own_sum = gradient.sum(dimensions, false, at::kDouble);
    const at::Tensor own_product = (gradient * normal).sum(dimensions, false, at::kDouble);
    at::Tensor total = at::zeros({2 * input.size(1)}, at::kDouble);
    for (const at::Tensor& theirs : gather(group, at::cat({own_sum, own_product}))) total.add_(theirs);
    total.div_(context->saved_data["count"].toDouble());
    const at::Tensor sum = total.narrow(0, 0, input.size(1)).to(mean.scalar_type());
    const at::Tensor product = total.narrow(0, input.size(1), input.size(1)).to(mean.scalar_type());
    at::Tensor of_input = gradient - beside(sum, input) - normal * beside(product, input);
    of_input.mul_(beside(weight.defined() ? inverse * weight : inverse, input));
    at::Tensor of_weight, of_bias;
    if (weight.defined()) {
      of_weight = own_product.to(weight.scalar_type());
      of_bias = own_sum.to(weight.scalar_type());
    }
    return {of_input.to(input.scalar_type()), of_weight, of_bias, {}, {}, {}, {}};
  }
};

}  // namespace

JointStatistics joint_statistics(const Group& process_group, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  const std::int64_t channels = input.size(1);
  const double own_count = channels == 0 ? 0 : double(input.numel()) / double(channels);
  at::Tensor own = at::zeros({2 * channels + 1}, at::kDouble);
  own[2 * channels] = own_count;
  if (own_count > 0) {
    // In double from the start: what float loses here is the difference to one process with the whole batch.
    const auto [variance, mean] =
        at::var_mean(input.detach().to(at::kDouble), reduced_dimensions(input), /*correction=*/0.0);
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels).copy_(variance);
  }
  const std::vector<at::Tensor> all = gather(process_group, own);
  JointStatistics joint{at::zeros({channels}, at::kDouble), at::zeros({channels}, at::kDouble), 0};
  // Two batches' variances give that of both together (Chan, Golub and LeVeque, 1979).
  for (const at::Tensor& theirs : all) {
    const double count = theirs[2 * channels].item<double>();
    if (count == 0) continue;
    const double total = joint.count + count;
    const at::Tensor apart = theirs.narrow(0, 0, channels) - joint.mean;
    joint.variance.mul_(joint.count / total)
        .add_(theirs.narrow(0, channels, channels), count / total)
        .add_(apart * apart, joint.count * count / (total * total));
    joint.mean.add_(apart, count / total);
    joint.count = total;
  }
  return joint;
}

at::Tensor joint_norm(const Group& process_group, const at::Tensor& input, const JointStatistics& statistics,
                      const at::Tensor& weight, const at::Tensor& bias, double eps) {
  const at::ScalarType type = at::toOpMathType(input.scalar_type());
  const at::Tensor inverse = (statistics.variance + eps).rsqrt().to(type);
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return JointNorm::apply(input, if_defined(weight), if_defined(bias), statistics.mean.to(type), inverse,
                          statistics.count, process_group);
}

}  // namespace shoal
