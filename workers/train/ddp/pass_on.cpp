#include <shoal/internal/workers/train/ddp/pass_on.h>

#include <torch/csrc/autograd/custom_function.h>

#include <cstddef>

namespace shoal {
namespace {

/// Copies, as torch has them: a result that is a view of several could not be changed in place.
struct PassOn : torch::autograd::Function<PassOn> {
  using Tensors = torch::autograd::variable_list;
  static Tensors forward(torch::autograd::AutogradContext* context, const c10::intrusive_ptr<BackwardBegins>& begins,
                         at::TensorList results) {
    context->set_materialize_grads(false);
    context->saved_data["begins"] = c10::IValue::make_capsule(begins);
    Tensors copies;
    for (const at::Tensor& result : results) copies.push_back(result.clone());
    return copies;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto begins = c10::static_intrusive_pointer_cast<BackwardBegins>(context->saved_data["begins"].toCapsule());
    if (begins->call) begins->call();
    Tensors with_none{at::Tensor()};  // for `begins`
    with_none.insert(with_none.end(), gradients.begin(), gradients.end());
    return with_none;
  }
};

}  // namespace

void pass_on(const c10::intrusive_ptr<BackwardBegins>& begins, const std::vector<at::Tensor*>& results) {
  std::vector<at::Tensor*> passed;
  std::vector<at::Tensor> tensors;
  for (at::Tensor* result : results) {
    if (!result->grad_fn()) continue;
    passed.push_back(result);
    tensors.push_back(*result);
  }
  if (passed.empty()) return;
  tensors = PassOn::apply(begins, at::TensorList(tensors));  // a vector is not looked into
  for (std::size_t i = 0; i < passed.size(); ++i) *passed[i] = tensors[i];
}

}  // namespace shoal
