#include <shoal/internal/workers/train/hogwild/fused.h>

#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/scalar_tensor.h>

namespace shoal::hogwild {

bool is_fused(Rule rule, const Numbers& numbers, c10::ScalarType type) {
  if (rule == Rule::rmsprop) return false;
  // One flag for a whole call says whether this is a parameter's first step; SpanUpdate knows by itself.
  if (rule == Rule::sgd && numbers.momentum != 0 && numbers.dampening != 0) return false;
  return type == c10::ScalarType::Float || type == c10::ScalarType::Double;
}

void FusedBatch::add(const at::Tensor& parameter, const at::Tensor& gradient,
                     const std::array<at::Tensor, kMostKept>& kept, std::int64_t step) {
  parameters_.push_back(parameter);
  gradients_.push_back(gradient);
  for (std::size_t place = 0; place < kMostKept; ++place)
    if (kept[place].defined()) kept_[place].push_back(kept[place]);
  if (rule_ != Rule::sgd) steps_.push_back(at::scalar_tensor(step, at::kLong));
}

void FusedBatch::run() {
  if (parameters_.empty()) return;
  const Numbers& n = numbers_;
  switch (rule_) {
    case Rule::sgd:
      return at::_fused_sgd_(parameters_, gradients_, kept_[0], n.weight_decay, n.momentum, lr_, n.dampening,
                             n.nesterov, n.maximize, /*is_first_step=*/false);
    case Rule::adam:
      return at::_fused_adam_(parameters_, gradients_, kept_[0], kept_[1], kept_[2], steps_, lr_, n.beta1, n.beta2,
                              n.weight_decay, n.eps, n.amsgrad, n.maximize);
    case Rule::adamw:
      return at::_fused_adamw_(parameters_, gradients_, kept_[0], kept_[1], kept_[2], steps_, lr_, n.beta1, n.beta2,
                               n.weight_decay, n.eps, n.amsgrad, n.maximize);
    case Rule::adagrad:
      return at::_fused_adagrad_(parameters_, gradients_, kept_[0], steps_, lr_, n.lr_decay, n.weight_decay, n.eps,
                                 n.maximize);
    case Rule::rmsprop:
      break;
  }
}

}  // namespace shoal::hogwild
