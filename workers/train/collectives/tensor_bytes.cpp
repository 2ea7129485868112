#include <shoal/internal/workers/train/collectives/tensor_bytes.h>

#include <fmt/format.h>
#include <shoal/internal/tensors/storage/storage.h>

#include <stdexcept>

namespace shoal {

TensorBytes::TensorBytes(const at::Tensor& tensor, const char* what) : tensor_(tensor) {
  if (!tensor.defined()) throw std::invalid_argument(fmt::format("{} of an undefined tensor", what));
  if (tensor.layout() != c10::kStrided)
    throw std::invalid_argument(fmt::format("{} of a {} tensor: backend shm takes strided ones; call to_dense() first",
                                            what, c10::str(tensor.layout())));
  if (!tensor.device().is_cpu())
    throw std::invalid_argument(
        fmt::format("{} of a tensor on {}: backend shm takes CPU tensors", what, tensor.device().str()));
  plain_ = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  dense_ = plain_ ? tensor : tensor.detach().resolve_conj().resolve_neg().contiguous();
}

Region TensorBytes::region() const {
  auto* data = static_cast<std::byte*>(dense_.data_ptr());
  return Region{data, dense_.nbytes(), dense_.nbytes() != 0 ? shared_hold(dense_) : nullptr};
}

void TensorBytes::write_back() {
  if (!plain_) tensor_.detach().copy_(dense_);
}

}  // namespace shoal
