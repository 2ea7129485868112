// Tensors made equal on all ranks: parameters at the start, buffers with each forward pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <shoal/internal/workers/train/ddp/module_check.h>

#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// All ranks get root's values. Autograd does not learn of it: several forward passes may go before a backward pass,
/// whose saved buffers are batch norms' running values, which it does not use.
void broadcast_tensors(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                       const std::vector<at::Tensor>& tensors, int root);

/// All ranks get the mean of those `ranks` that take part (a rank that does not, counts nothing: see Join); of tensors
/// that count (integers, truth values), root's.
void average_tensors(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                     const std::vector<at::Tensor>& tensors, int root, int ranks, bool takes_part);

/// The tensors without their names.
std::vector<at::Tensor> tensors_of(const NamedTensorList& named);

}  // namespace shoal
