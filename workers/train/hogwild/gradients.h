// The gradients of one process's step: found, made fit, clipped.
#pragma once

#include <ATen/core/Tensor.h>
#include <shoal/internal/workers/train/hogwild/hogwild_state.h>

#include <cstddef>
#include <vector>

namespace shoal::hogwild {

/// A parameter's gradient.
struct Gradient {
  std::size_t parameter;  // its index
  at::Tensor flat;        // dense: its elements, in the order in which the parameter's lie; undefined if it is sparse
  at::Tensor rows;        // sparse: the rows' numbers, each once, ascending
  at::Tensor values;      // sparse: [rows, elements of a row]

  bool is_sparse() const { return rows.defined(); }
};

/// The gradients that the parameters have: copies only of those that do not lie as the parameter does, or name rows
/// several times. Clips them in place where the options ask for it, as torch.nn.utils does. Throws
/// std::invalid_argument for one that does not fit.
std::vector<Gradient> take_gradients(Optimizer::State& state);

}  // namespace shoal::hogwild
