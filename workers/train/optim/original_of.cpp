#include <shoal/internal/workers/train/optim/original_of.h>

#include <ATen/core/grad_mode.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

namespace shoal {
namespace {

constexpr std::size_t kCopiesAtOnce = 250u << 20;  // bytes

/// Lives with the copy: no table of addresses that another tensor may have later.
struct Original final : c10::BackendMeta {
  explicit Original(at::Tensor parameter) : parameter(std::move(parameter)) {}
  /// What libtorch makes of the copy, by detach() or set_data(), is none.
  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>&) const override { return {}; }
  at::Tensor parameter;
};

}  // namespace

void remember_original(const at::Tensor& copy, const at::Tensor& original) {
  copy.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Original>(original));
}

at::Tensor original_of(const at::Tensor& parameter) {
  const auto* original = dynamic_cast<const Original*>(parameter.unsafeGetTensorImpl()->get_backend_meta());
  return original ? original->parameter : at::Tensor();
}

void take_gradient(const at::Tensor& copy, const at::Tensor& original) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = original.mutable_grad();
  copy.mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : at::Tensor();
  gradient.reset();
}

void give_value(const at::Tensor& copy, const at::Tensor& original) {
  const at::NoGradGuard no_grad;
  original.detach().copy_(copy.detach());
}

void equalize_copies(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const CopyList& copies, int root,
                     bool drops_gradients) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const auto& [copy, original] : copies) {
    if (drops_gradients) original.mutable_grad().reset();
    values.push_back(copy.detach());
  }
  if (!values.empty()) c10d::broadcast_coalesced(process_group, values, kCopiesAtOnce, root);
}

}  // namespace shoal
