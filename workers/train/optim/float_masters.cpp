#include <shoal/workers/train/float_masters.h>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <shoal/internal/tensors/modules/each_once.h>

#include <cstddef>
#include <stdexcept>

namespace shoal {

FloatMasters::FloatMasters(const std::vector<at::Tensor>& parameters) : parameters_(each_once(parameters)) {
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.scalar_type() == at::kComplexHalf)
      throw std::invalid_argument(fmt::format(
          "FloatMasters: parameter {} is of {}, of which copies in float are not made: cast it to ComplexFloat",
          masters_.size(), c10::toString(parameter.scalar_type())));
    const bool half = parameter.scalar_type() == at::kBFloat16 || parameter.scalar_type() == at::kHalf;
    masters_.push_back(half ? parameter.detach().to(at::kFloat).set_requires_grad(parameter.requires_grad())
                            : parameter);
  }
}

void FloatMasters::take_gradients() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (masters_[i].is_same(parameters_[i])) continue;
    at::Tensor& gradient = parameters_[i].mutable_grad();
    masters_[i].mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : at::Tensor();
    gradient.reset();
  }
}

void FloatMasters::give_parameters() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!masters_[i].is_same(parameters_[i])) parameters_[i].detach().copy_(masters_[i].detach());
}

void FloatMasters::take_parameters() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!masters_[i].is_same(parameters_[i])) masters_[i].detach().copy_(parameters_[i].detach());
}

}  // namespace shoal
