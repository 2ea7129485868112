// Of which half-type parameter a tensor is FloatMasters' copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <utility>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace shoal {

/// Float copies, each with its original.
using CopyList = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// Remembers, as long as `copy` lives and nobody gives it other memory, that it is the float copy of `original`. An
/// optimizer gets the copies as any other parameters, and where it steps without its user, in a Join on a rank without a
/// batch, it has to find the originals: whoever needs them asks once, when it gets the copies.
void remember_original(const at::Tensor& copy, const at::Tensor& original);

/// The parameter whose float copy this is; undefined if it is none.
at::Tensor original_of(const at::Tensor& parameter);

/// The copy's gradient is its original's, which is none afterwards; where none is, none.
void take_gradient(const at::Tensor& copy, const at::Tensor& original);

/// Rounds the copy to its original.
void give_value(const at::Tensor& copy, const at::Tensor& original);

/// Collective, at a Join's end: the copies become root's. `drops_gradients`: on a rank that was without a batch, whose
/// originals have the gradients of the others' last pass: its next backward pass would add to them.
void equalize_copies(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const CopyList& copies, int root,
                     bool drops_gradients);

}  // namespace shoal
