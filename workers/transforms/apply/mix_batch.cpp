#include <shoal/workers/transforms/mix_batch.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/roll.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shoal/internal/workers/transforms/mixing/mixing_draws.h>

#include <stdexcept>

namespace shoal {
namespace {

std::invalid_argument fault(const char* what, const std::string& text) {
  return std::invalid_argument(fmt::format("{}: {}", what, text));
}

/// Shares of classes: float32 of numbers of classes, else as they are.
at::Tensor shares_of(const char* what, const at::Tensor& images, const at::Tensor& labels, std::int64_t classes) {
  if (!images.defined() || !labels.defined()) throw fault(what, "images or labels are undefined");
  if (images.dim() < 1 || labels.dim() < 1 || images.size(0) != labels.size(0))
    throw fault(what, fmt::format("images of shape [{}] and labels of shape [{}]: both need as many samples",
                                  fmt::join(images.sizes(), ", "), fmt::join(labels.sizes(), ", ")));
  if (classes < 0) {
    if (!labels.is_floating_point() || labels.dim() != 2)
      throw fault(what,
                  fmt::format("labels are {} of {} dimensions: shares are floating-point [n, classes]; for numbers "
                              "of classes set num_classes",
                              c10::toString(labels.scalar_type()), labels.dim()));
    return labels;
  }
  if (labels.scalar_type() != at::kLong || labels.dim() != 1)
    throw fault(what, fmt::format("labels are {} of {} dimensions: with num_classes they are int64 [n]",
                                  c10::toString(labels.scalar_type()), labels.dim()));
  if (labels.numel() != 0) {
    const auto least = labels.min().item<std::int64_t>(), most = labels.max().item<std::int64_t>();
    if (least < 0 || most >= classes)
      throw fault(what, fmt::format("labels are from {} to {}, and num_classes is {}", least, most, classes));
  }
  return at::one_hot(labels, classes).to(at::kFloat);
}

/// l * own + (1 - l) * the one before it
at::Tensor mixed(const at::Tensor& own, double share) { return own.roll(1, 0).mul_(1 - share).add_(own, share); }

}  // namespace

MixedBatch mix_up(const at::Tensor& images, const at::Tensor& labels, const MixOptions& options, const SampleKey& key) {
  const at::NoGradGuard no_grad;
  const at::Tensor shares = shares_of("mix_up", images, labels, options.num_classes);
  if (!images.is_floating_point())
    throw fault("mix_up", fmt::format("images are {}: they have to be floating-point (ToFloat)",
                                      c10::toString(images.scalar_type())));
  SampleRandom random(key, mixed_bits(1));
  const double own = detail::beta_draw(random, options.alpha);
  return {mixed(images, own), mixed(shares, own)};
}

MixedBatch cut_mix(const at::Tensor& images, const at::Tensor& labels, const MixOptions& options,
                   const SampleKey& key) {
  const at::NoGradGuard no_grad;
  const at::Tensor shares = shares_of("cut_mix", images, labels, options.num_classes);
  if (images.dim() != 4)
    throw fault("cut_mix", fmt::format("images of shape [{}]: they are [n, channels, height, width]",
                                       fmt::join(images.sizes(), ", ")));
  SampleRandom random(key, mixed_bits(2));
  const detail::CutBox box =
      detail::cut_box(random, options.alpha, {.height = images.size(2), .width = images.size(3)});
  const auto part = [&](const at::Tensor& of) {
    return of.narrow(2, box.top, box.bottom - box.top).narrow(3, box.left, box.right - box.left);
  };
  at::Tensor result = images.clone();
  part(result).copy_(part(images).roll(1, 0));
  return {result, mixed(shares, box.own_share)};
}

}  // namespace shoal
