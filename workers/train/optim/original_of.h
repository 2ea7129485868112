// Of which half-type parameter a tensor is FloatMasters' copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// Remembers, as long as `copy` lives, that it is the float copy of `original`. An optimizer gets the copies as any
/// other parameters, and where it steps without its user, in a Join on a rank without a batch, it has to find the
/// originals.
void remember_original(const at::Tensor& copy, const at::Tensor& original);

/// The parameter whose float copy this is; undefined if it is none.
at::Tensor original_of(const at::Tensor& parameter);

/// The copy's gradient is its original's, which is none afterwards; where none is, none.
void take_gradient(const at::Tensor& copy, const at::Tensor& original);

/// Rounds the copy to its original.
void give_value(const at::Tensor& copy, const at::Tensor& original);

/// Collective, at a Join's end: those of these parameters that are copies become root's. Their originals have no
/// gradients afterwards, as after each step of a rank with a batch: the next backward pass would add to those that the
/// Join has left on a rank without one.
void equalize_copies(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group,
                     const std::vector<at::Tensor>& parameters, int root);

}  // namespace shoal
