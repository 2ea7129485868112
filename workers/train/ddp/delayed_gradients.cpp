#include <shoal/internal/workers/train/ddp/delayed_gradients.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <shoal/tensors/shared_memory_scope.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shoal {

DelayedGradients::DelayedGradients(const NamedTensorList& parameters) {
  for (const auto& [name, parameter] : parameters) {
    auto piece = std::ranges::find_if(
        pieces_, [&](const Piece& other) { return other.parameters[0].options().type_equal(parameter.options()); });
    if (piece == pieces_.end()) piece = pieces_.emplace(pieces_.end());
    piece->parameters.push_back(parameter);
  }
  const SharedMemoryScope born_shared;
  for (Piece& piece : pieces_) {
    std::int64_t elements = 0;
    for (const at::Tensor& parameter : piece.parameters) elements += parameter.numel();
    piece.buffer = at::zeros({elements}, piece.parameters[0].options().requires_grad(false));
  }
}

void DelayedGradients::reduce(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, int divisor) {
  exchange(process_group, divisor, true);
}

void DelayedGradients::reduce_nothing(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group) {
  exchange(process_group, 1, false);
}

void DelayedGradients::exchange(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, int divisor,
                                bool has_gradients) {
  const at::NoGradGuard no_grad;
  for (Piece& piece : pieces_) {
    std::vector<at::Tensor> parts;
    std::int64_t at = 0;
    for (at::Tensor& parameter : piece.parameters) {
      parts.push_back(piece.buffer.narrow(0, at, parameter.numel()).view(parameter.sizes()));
      at += parameter.numel();
      if (has_gradients && parameter.grad().defined())
        parts.back().copy_(parameter.grad());
      else
        parts.back().zero_();
    }
    piece.buffer.div_(divisor);
    std::vector<at::Tensor> sum{piece.buffer};
    process_group->allreduce(sum)->wait();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      at::Tensor& gradient = piece.parameters[i].mutable_grad();
      if (gradient.defined())
        gradient.copy_(parts[i]);
      else
        gradient = parts[i].clone();
    }
  }
}

}  // namespace shoal
