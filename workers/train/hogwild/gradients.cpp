#include <shoal/internal/workers/train/hogwild/gradients.h>

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>

namespace shoal::hogwild {
namespace {

/// The gradient with the numbers that it reads as where they lie: a lazily negated one, of a conjugate's view for example,
/// and zeros without memory have others there, or none.
at::Tensor resolved(const at::Tensor& gradient) {
  if (gradient._is_zerotensor()) return at::zeros_like(gradient);
  return gradient.resolve_neg();
}

bool is_in_a_parameter(const Optimizer::State& state, const at::Tensor& values) {
  return std::ranges::any_of(state.parameters, [&](const Parameter& each) { return values.is_alias_of(each.tensor); });
}

Gradient take_sparse(const Optimizer::State& state, std::size_t index, const at::Tensor& gradient) {
  const at::Tensor& parameter = state.parameters[index].tensor;
  if (gradient.sparse_dim() != 1 || !parameter.is_contiguous())
    throw std::invalid_argument(fmt::format(
        "hogwild: the gradient of parameter {} is sparse in {} dimensions: rows of a contiguous parameter are updated",
        index, gradient.sparse_dim()));
  const at::Tensor indices = gradient._indices();
  at::Tensor values = resolved(gradient._values()).contiguous();
  // As of backward(another weight): rows are read while those before them are updated, and would have new numbers.
  if (is_in_a_parameter(state, values)) values = values.clone();
  const std::int64_t row = parameter.numel() / parameter.size(0);
  try {
    return {.parameter = index,
            .flat = {},
            .rows = SparseRows(indices.select(0, 0), values.view({indices.size(1), row}), parameter.size(0))};
  } catch (const std::out_of_range& error) {
    throw std::invalid_argument(fmt::format("hogwild: the gradient of parameter {} has {}", index, error.what()));
  }
}

Gradient take_dense(std::size_t index, const at::Tensor& parameter, const at::Tensor& given) {
  at::Tensor gradient = resolved(given);
  if (gradient.strides() != parameter.strides()) {
    at::Tensor copy = at::empty_strided(parameter.sizes(), parameter.strides(), gradient.options());
    copy.copy_(gradient);
    gradient = copy;
  }
  return {
      .parameter = index, .flat = gradient.as_strided({gradient.numel()}, {1}, gradient.storage_offset()), .rows = {}};
}

void clip(const HogwildLayout& layout, std::vector<Gradient>& gradients) {
  const auto values_of = [](Gradient& gradient) -> at::Tensor& {
    return gradient.is_sparse() ? gradient.rows->own_values() : gradient.flat;
  };
  if (layout.clip_grad_value >= 0)
    for (Gradient& gradient : gradients) values_of(gradient).clamp_(-layout.clip_grad_value, layout.clip_grad_value);
  if (layout.clip_grad_norm < 0 || gradients.empty()) return;
  std::vector<at::Tensor> norms;
  norms.reserve(gradients.size());
  for (Gradient& gradient : gradients) {
    const at::Tensor& values = values_of(gradient);
    if (values.numel() == 0) continue;  // sparse without rows: the largest of none is refused
    // Squares of half types overflow, and their sum has few digits.
    const bool half = values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16;
    norms.push_back(at::linalg_vector_norm(values, layout.clip_grad_norm_type, std::nullopt, false,
                                           half ? std::optional(at::kFloat) : std::nullopt)
                        .to(at::kDouble));
  }
  if (norms.empty()) return;
  const double norm = at::linalg_vector_norm(at::stack(norms), layout.clip_grad_norm_type).item<double>();
  const double factor = layout.clip_grad_norm / (norm + 1e-6);
  // A norm that is no number goes to all gradients, as in torch: none is taken at its full length.
  if (factor < 1 || std::isnan(factor))
    for (Gradient& gradient : gradients) values_of(gradient).mul_(factor);
}

}  // namespace

std::vector<Gradient> take_gradients(Optimizer::State& state) {
  std::vector<Gradient> all;
  all.reserve(state.parameters.size());
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    at::Tensor& parameter = state.parameters[i].tensor;
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined() || parameter.numel() == 0) continue;
    gradient = gradient.detach();
    if (gradient.sizes() != parameter.sizes() || gradient.scalar_type() != parameter.scalar_type() ||
        !gradient.device().is_cpu() || (gradient.layout() != c10::kStrided && gradient.layout() != c10::kSparse))
      throw std::invalid_argument(
          fmt::format("hogwild: the gradient of parameter {} is [{}] of {}, {}, which does not fit it", i,
                      fmt::join(gradient.sizes(), ", "), c10::toString(gradient.scalar_type()),
                      gradient.layout() == c10::kStrided || gradient.layout() == c10::kSparse ? "strided or sparse"
                                                                                              : "of another layout"));
    all.push_back(gradient.layout() == c10::kSparse ? take_sparse(state, i, gradient)
                                                    : take_dense(i, parameter, gradient));
  }
  clip(*state.layout, all);
  return all;
}

}  // namespace shoal::hogwild
